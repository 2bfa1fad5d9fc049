// The undirected edges of sorted edges that have their reverses, on CUDA: no sort, the reverse of an edge is
// found by bisection.
#pragma once

#include <cub/device/device_scan.cuh>

#include "../core/progress.h"
#include "launch.cuh"

namespace gpn::cuda {

// Registers: 32.
template <class Rank>
__global__ void flag_ascending(Edges edges, Rank* flag) {
  for (int64_t e = thread_index(); e < edges.count; e += thread_count()) {
    flag[e] = edges.row[e] <= edges.col[e];
  }
}

// rank[e] = how many edges up to and including e ascend: those are the pairs.
// Registers: 40.
template <class Rank>
__global__ void write_sorted_pairs(Edges edges, const Rank* rank, int64_t num_pairs, int64_t* pairs,
                                   int64_t* slot) {
  for (int64_t e = thread_index(); e < edges.count; e += thread_count()) {
    const int64_t row = edges.row[e], col = edges.col[e];
    const int64_t reverse = find_edge(edges, edges.count, col, row);
    const int64_t pair = reverse < 0 ? -1 : rank[row <= col ? e : reverse] - 1;
    const bool good = fits(pair, num_pairs) && rank[edges.count - 1] == num_pairs;
    if (!good) {
      __assert_fail("edge_index: sorted edges with their reverses, num_pairs", __FILE__, __LINE__,
                    "gpn::cuda");
    }
    slot[e] = good ? pair : -1;
    if (good && row <= col) {
      pairs[pair] = row;
      pairs[num_pairs + pair] = col;
    }
  }
}

template <class Scratch>
void sorted_pairs_kernel(const Launcher& launch, const Edges& edges, int64_t num_pairs, int64_t* pairs,
                         int64_t* slot, const Scratch& scratch) {
  if (edges.count == 0) return;
  int64_t* rank = room<int64_t>(scratch, edges.count);
  launch(flag_ascending<int64_t>, edges.count, edges, rank);
  size_t bytes = 0;
  Launcher::check(cub::DeviceScan::InclusiveSum(nullptr, bytes, rank, rank, edges.count, launch.stream));
  void* storage = scratch(int64_t(bytes));
  Launcher::check(cub::DeviceScan::InclusiveSum(storage, bytes, rank, rank, edges.count, launch.stream));
  launch(write_sorted_pairs<int64_t>, edges.count, edges, rank, num_pairs, pairs, slot);
}

}  // namespace gpn::cuda
