// The clusters that dominant edges make, on CUDA: every node is joined to its choice.
#pragma once

#include "components.cuh"
#include "dominant.cuh"

namespace gpn::cuda {

// Registers: 32.
template <class Node>
__global__ void start_nodes(int64_t num_nodes, uint64_t* keys, Node* parent) {
  GPN_NO_UNROLL
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) {
    keys[v] = 0;
    parent[v] = Node(v);
  }
}

// Joins a node and its choice as soon as that is known: nobody keeps it.
template <class Node>
struct HookChoice {
  Node* parent;
  __device__ void operator()(int64_t v, int64_t neighbour) const {
    if (neighbour >= 0) hook(parent, Node(v), Node(neighbour));
  }
};

// cluster: [num_nodes], which holds the keys first.
template <class Node, class Score, class Scratch>
void label_choices(const Launcher& launch, const Edges& edges, const Score* scores, Form form,
                   int64_t first_edge, int64_t* cluster, const Scratch& scratch) {
  Node* parent = room<Node>(scratch, edges.num_nodes);
  uint64_t* keys = reinterpret_cast<uint64_t*>(cluster);
  launch(start_nodes<Node>, edges.num_nodes, edges.num_nodes, keys, parent);
  dominant(launch, edges, scores, KeepColumn{edges.col}, form, first_edge, keys, HookChoice<Node>{parent},
           scratch);
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
