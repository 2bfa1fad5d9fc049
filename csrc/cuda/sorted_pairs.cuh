// The undirected edges of sorted edges that have their reverses, on CUDA: no sort, the reverse of an edge is
// found by bisection.
#pragma once

#include "../core/progress.h"
#include "scan.cuh"

namespace gpn::cuda {

struct Ascends {
  Edges edges;
  GPN_HOST_DEVICE int64_t operator()(int64_t e) const { return edges.row[e] <= edges.col[e]; }
};

// rank[e] = how many edges up to and including e ascend: those are the pairs.
struct StorePair {
  Ascends ascends;
  int64_t num_pairs;
  int64_t* pairs;
  int64_t* rank;
  GPN_HOST_DEVICE void operator()(int64_t e, int64_t so_far) const {
    rank[e] = so_far;
    if (!ascends(e) || so_far > num_pairs) return;
    pairs[so_far - 1] = ascends.edges.row[e];
    pairs[num_pairs + so_far - 1] = ascends.edges.col[e];
  }
};

// Registers: 40.
template <class Rank>
__global__ void find_slots(Edges edges, const Rank* rank, int64_t num_pairs, int64_t* slot) {
  const bool all = rank[edges.count - 1] == num_pairs;
  for (int64_t e = thread_index(); e < edges.count; e += thread_count()) {
    const int64_t row = edges.row[e], col = edges.col[e];
    const int64_t reverse = find_edge(edges, edges.count, col, row);
    const int64_t pair = reverse < 0 ? -1 : rank[row <= col ? e : reverse] - 1;
    const bool good = all && fits(pair, num_pairs);
    if (!good) {
      __assert_fail("edge_index: sorted edges with their reverses, num_pairs", __FILE__, __LINE__,
                    "gpn::cuda");
    }
    slot[e] = good ? pair : -1;
  }
}

template <class Scratch>
void sorted_pairs_kernel(const Launcher& launch, const Edges& edges, int64_t num_pairs, int64_t* pairs,
                         int64_t* slot, const Scratch& scratch) {
  if (edges.count == 0) return;
  int64_t* rank = room<int64_t>(scratch, edges.count);
  const Ascends ascends{edges};
  scan<int64_t>(launch, edges.count, ascends, StorePair{ascends, num_pairs, pairs, rank}, scratch);
  launch(find_slots<int64_t>, edges.count, edges, rank, num_pairs, slot);
}

}  // namespace gpn::cuda
