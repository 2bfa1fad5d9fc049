// The clusters that dominant edges make, on CUDA: choices first, then components.
#pragma once

#include "components.cuh"
#include "dominant.cuh"

namespace gpn::cuda {

// A node's choice, and its parent before any hook.
template <class Node>
struct StoreChoice {
  Node* choice;
  Node* parent;
  __device__ void operator()(int64_t v, int64_t neighbour) const {
    choice[v] = Node(neighbour);
    parent[v] = first_parent(Node(v), Node(neighbour));
  }
};

// What the first parents left: the choices of a larger node.
// Registers: 32.
template <class Node>
__global__ void hook_choices(const Node* choice, int64_t num_nodes, Node* parent) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) {
    if (choice[v] > v) hook(parent, Node(v), choice[v]);
  }
}

// cluster: [num_nodes], which holds the keys first.
template <class Node, class Score, class Scratch>
void label_choices(const Launcher& launch, const Edges& edges, const Score* scores, Form form,
                   int64_t first_edge, int64_t* cluster, const Scratch& scratch) {
  Node* choice = room<Node>(scratch, edges.num_nodes);
  Node* parent = room<Node>(scratch, edges.num_nodes);
  dominant(launch, edges, scores, KeepColumn{edges.col}, form, first_edge,
           reinterpret_cast<uint64_t*>(cluster), StoreChoice<Node>{choice, parent}, scratch);
  launch(hook_choices<Node>, edges.num_nodes, choice, edges.num_nodes, parent);
  label_components(launch, parent, edges.num_nodes, cluster, scratch);
}

template <class Score, class Scratch>
void parse_kernel(const Launcher& launch, const Edges& edges, const Score* scores, int64_t* cluster,
                  const Scratch& scratch) {
  if (edges.num_nodes <= std::numeric_limits<int32_t>::max()) {
    label_choices<int32_t>(launch, edges, scores, Form::kAutomatic, 0, cluster, scratch);
  } else {
    label_choices<int64_t>(launch, edges, scores, Form::kAutomatic, 0, cluster, scratch);
  }
}

}  // namespace gpn::cuda
