// Connected components on CUDA: hook, rank the roots with a scan, look the labels up.
#pragma once

#include "../core/errors.h"
#include "../core/union_find.h"
#include "largest.cuh"
#include "scan.cuh"

namespace gpn::cuda {

// Registers: 32.
template <class Node>
__global__ void start_alone(int64_t num_nodes, Node* parent) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) parent[v] = Node(v);
}

// Registers: 32.
template <class Node>
__global__ void hook_edges(Edges edges, Node* parent) {
  for (int64_t edge = thread_index(); edge < edges.count; edge += thread_count()) {
    const int64_t row = edges.row[edge], col = edges.col[edge];
    if (in_range(row, edges.num_nodes) && in_range(col, edges.num_nodes)) hook(parent, Node(row), Node(col));
  }
}

template <class Node>
struct IsRoot {
  const Node* parent;
  __device__ Node operator()(int64_t v) const { return parent[v] == v; }
};

// rank counts the roots up to and including v.
template <class Node>
struct MarkRoot {
  Node* parent;
  __device__ void operator()(int64_t v, Node rank) const {
    if (parent[v] == v) parent[v] = Node(~(rank - 1));
  }
};

// Registers: 32.
template <class Node>
__global__ void settle_labels(Node* parent, int64_t num_nodes, int64_t* label) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) label[v] = ~settle(parent, Node(v));
}

// label[v] = rank of v's root among all roots. Overwrites the forest.
template <class Node, class Scratch>
void label_components(const Launcher& launch, Node* parent, int64_t num_nodes, int64_t* label,
                      const Scratch& scratch) {
  scan<Node>(launch, num_nodes, IsRoot<Node>{parent}, MarkRoot<Node>{parent}, scratch);
  launch(settle_labels<Node>, num_nodes, parent, num_nodes, label);
}

template <class Node, class Scratch>
void label_edges(const Launcher& launch, const Edges& edges, int64_t* label, const Scratch& scratch) {
  Node* parent = room<Node>(scratch, edges.num_nodes);
  launch(start_alone<Node>, edges.num_nodes, edges.num_nodes, parent);
  launch(hook_edges<Node>, edges.count, edges, parent);
  label_components(launch, parent, edges.num_nodes, label, scratch);
}

template <class Scratch>
void components_kernel(const Launcher& launch, const Edges& edges, int64_t* label, const Scratch& scratch) {
  if (edges.num_nodes <= std::numeric_limits<int32_t>::max()) {
    label_edges<int32_t>(launch, edges, label, scratch);
  } else {
    label_edges<int64_t>(launch, edges, label, scratch);
  }
}

// The largest id plus one: waits for the device.
template <class Scratch>
int64_t count_nodes(const Launcher& launch, const int64_t* row, const int64_t* col, int64_t count,
                    const Scratch& scratch) {
  int64_t* on_device = room<int64_t>(scratch, 1);
  launch(fill<int64_t>, 1, on_device, 1, -1);
  launch(raise_largest<int64_t, AnyId>, count, row, count, AnyId(), on_device);
  launch(raise_largest<int64_t, AnyId>, count, col, count, AnyId(), on_device);
  int64_t on_host = -1;
  launch.read(on_device, &on_host, 1);
  if (on_host >= kMostNodes) {
    fail("edge_index: expected node ids below 2^", kMostNodesLog2, ", got ", on_host);
  }
  return on_host + 1;
}

}  // namespace gpn::cuda
