// The undirected edges of sorted edges that have their reverses, on CUDA: no sort, the reverse of an edge is
// found by bisection.
#pragma once

#include "../core/progress.h"
#include "scan.cuh"

namespace gpn::cuda {

struct Ascends {
  Edges edges;
  __device__ int64_t operator()(int64_t e) const { return edges.row[e] <= edges.col[e]; }
};

// so_far: how many edges up to and including e ascend. Those are the pairs, each of which also tells its
// reverse.
struct StorePair {
  Ascends ascends;
  int64_t num_pairs;
  int64_t* pairs;
  int64_t* slot;
  __device__ void operator()(int64_t e, int64_t so_far) const {
    const Edges& edges = ascends.edges;
    const int64_t row = edges.row[e], col = edges.col[e];
    const int64_t reverse = find_edge(edges, edges.count, col, row);
    const bool is_last = e + 1 == edges.count;
    const bool good = reverse >= 0 && so_far <= num_pairs && (!is_last || so_far == num_pairs);
    if (!good) {
      __assert_fail("edge_index: sorted edges with their reverses, num_pairs", __FILE__, __LINE__,
                    "gpn::cuda");
    }
    const int64_t pair = good ? so_far - 1 : -1;
    if (row > col) {
      if (reverse < 0) slot[e] = -1;
      return;
    }
    slot[e] = pair;
    if (reverse >= 0) slot[reverse] = pair;
    if (!good) return;
    pairs[pair] = row;
    pairs[num_pairs + pair] = col;
  }
};

template <class Scratch>
void sorted_pairs_kernel(const Launcher& launch, const Edges& edges, int64_t num_pairs, int64_t* pairs,
                         int64_t* slot, const Scratch& scratch) {
  const Ascends ascends{edges};
  scan<int64_t>(launch, edges.count, ascends, StorePair{ascends, num_pairs, pairs, slot}, scratch);
}

}  // namespace gpn::cuda
