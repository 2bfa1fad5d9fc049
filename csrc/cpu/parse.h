// The clusters that dominant edges make, on the CPU: choices first, then components.
#pragma once

#include "components.h"
#include "dominant.h"

namespace gpn::cpu {

// The neighbour that each node chooses, -1 where there is none, in the memory of `out` (num_nodes words of 64
// bits) as num_nodes words of the type of `spare`, which is scratch of that length.
template <class Parallel, class Score, class Node, class Scratch>
Sweep choices(const Parallel& parallel, const Edges& edges, const Score* scores, int64_t* out, Node* spare,
              const Scratch& wide_scratch) {
  const KeepColumn keep{edges.col};
  Node* choice = reinterpret_cast<Node*>(out);
  Sweep outcome = dominant_runs(parallel, edges, scores, keep, choice);
  if (outcome == Sweep::kUnsorted) {
    outcome = dominant_unsorted(parallel, edges, scores, keep, Form::kAutomatic, 0,
                                reinterpret_cast<uint64_t*>(out), spare, wide_scratch);
    if (outcome == Sweep::kDone) {
      for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
        std::copy(spare + begin, spare + end, choice + begin);
      });
    }
  }
  return outcome;
}

// Joins v and neighbour[v] for every v; neighbour[v] < 0 means none. parent: scratch of num_nodes, out: the
// forest.
template <class Parallel, class Choice, class Node>
void connect_choices(const Parallel& parallel, const Choice* neighbour, int64_t num_nodes, Node* parent) {
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) parent[v] = first_parent(Node(v), Node(neighbour[v]));
  });
  // What is left are choices of a larger node, less those of mutual pairs, of which the larger node has just
  // become the child. They are gathered without branches first: few remain, and which ones cannot be guessed.
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    Node left[kBlock];
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t stop = std::min(block + kBlock, end);
      for (int64_t v = block; v < stop; ++v) prefetch(parent + std::max<int64_t>(neighbour[v], v));
      int64_t count = 0;
      for (int64_t v = block; v < stop; ++v) {
        const int64_t larger = std::max<int64_t>(neighbour[v], v);
        left[count] = Node(v);
        count += (larger != v) & (atomic_load(parent + larger) != v);
      }
      for (int64_t i = 0; i < count; ++i) hook(parent, left[i], Node(neighbour[left[i]]));
    }
  });
}

template <class Parallel, class Score, class Scratch>
void parse_kernel(const Parallel& parallel, const Edges& edges, const Score* scores, int64_t* cluster,
                  const Scratch& scratch) {
  const auto wide_scratch = [&] { return room<int64_t>(scratch, edges.num_nodes); };
  with_forest(edges.num_nodes, scratch, [&]<class Node>(Node* parent) {
    if (choices(parallel, edges, scores, cluster, parent, wide_scratch) != Sweep::kDone) {
      report_bad_values(edges, scores);
    }
    connect_choices(parallel, reinterpret_cast<const Node*>(cluster), edges.num_nodes, parent);
    label_components(parallel, parent, edges.num_nodes, cluster);
  });
}

}  // namespace gpn::cpu
