// The graph between clusters, on CUDA.
#pragma once

#include "unique_edges.cuh"

namespace gpn::cuda {

// An edge seen as an edge between clusters; those inside a cluster are kept if loops are. One that takes no
// part is checked all the same.
struct BetweenClusters {
  const int64_t* cluster;
  bool self_loops;
  const int64_t* batch = nullptr;    // the graph of every node, or null: then edges may join any two
  const bool* takes_part = nullptr;  // of every edge, or null: all do

  __device__ uint64_t operator()(EdgeKeys keys, int64_t row, int64_t col, int64_t edge,
                                 int64_t num_nodes) const {
    if (batch && batch[row] != batch[col]) {
      __assert_fail("batch: every edge inside one graph", __FILE__, __LINE__, "gpn::cuda");
      return keys.in_nothing();
    }
    if (takes_part && !takes_part[edge]) return keys.in_nothing();
    const int64_t r = cluster[row], c = cluster[col];
    if (!fits(r, num_nodes) || !fits(c, num_nodes)) return keys.in_nothing();  // asserted of the node
    return r != c || self_loops ? keys.key(r, c) : keys.inside(c);
  }
};

template <class Found, class Scratch>
void coarsen_kernel(const Launcher& launch, const Edges& edges, const int64_t* cluster, bool self_loops,
                    const int64_t* batch, const bool* takes_part, int64_t* slot, uint32_t* order,
                    Found& found, const Scratch& scratch) {
  distinct(launch, edges, BetweenClusters{cluster, self_loops, batch, takes_part}, cluster, slot, order,
           found, scratch);
}

template <class Scratch>
void coarsen_padded_kernel(const Launcher& launch, const Edges& edges, const int64_t* cluster,
                           bool self_loops, const int64_t* batch, const bool* takes_part, int64_t* slot,
                           uint32_t* order, const Padded& out, const Scratch& scratch) {
  distinct_padded(launch, edges, BetweenClusters{cluster, self_loops, batch, takes_part}, cluster, slot,
                  order, out, scratch);
}

}  // namespace gpn::cuda
