// The clusters that dominant edges make, on CUDA: choices first, then components.
#pragma once

#include "components.cuh"
#include "dominant.cuh"

namespace gpn::cuda {

// Registers: 40.
template <class Node>
__global__ void start_from_choices(const int64_t* neighbour, int64_t num_nodes, Node* parent) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count())
    parent[v] = first_parent(Node(v), Node(neighbour[v]));
}

// What start_from_choices left: the choices of a larger node.
// Registers: 32.
template <class Node>
__global__ void hook_choices(const int64_t* neighbour, int64_t num_nodes, Node* parent) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) {
    if (neighbour[v] > v) hook(parent, Node(v), Node(neighbour[v]));
  }
}

template <class Node, class Scratch>
void label_choices(const Launcher& launch, const int64_t* neighbour, int64_t num_nodes, int64_t* label,
                   const Scratch& scratch) {
  Node* parent = room<Node>(scratch, num_nodes);
  launch(start_from_choices<Node>, num_nodes, neighbour, num_nodes, parent);
  launch(hook_choices<Node>, num_nodes, neighbour, num_nodes, parent);
  label_components(launch, parent, num_nodes, label, scratch);
}

template <class Score, class Scratch>
void parse_kernel(const Launcher& launch, const Edges& edges, const Score* scores, int64_t* cluster,
                  const Scratch& scratch) {
  // One buffer holds the keys, then each node's choice, then its cluster.
  dominant(launch, edges, scores, KeepColumn{edges.col}, Form::kAutomatic, 0, cluster, scratch);
  if (edges.num_nodes <= std::numeric_limits<int32_t>::max()) {
    label_choices<int32_t>(launch, cluster, edges.num_nodes, cluster, scratch);
  } else {
    label_choices<int64_t>(launch, cluster, edges.num_nodes, cluster, scratch);
  }
}

}  // namespace gpn::cuda
