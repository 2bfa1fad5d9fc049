// The undirected edges of an edge list, on the CPU.
#pragma once

#include "unique_edges.h"

namespace gpn::cpu {

// An edge seen as an unordered pair: it and its reverse are one.
struct WithoutDirection {
  static constexpr bool kRowNeedsCol = true;
  void fetch(int64_t) const {}
  uint64_t row(int64_t row, int64_t col) const { return std::min(row, col); }
  uint64_t col(int64_t row, int64_t col) const { return std::max(row, col); }
  bool accepts(const int64_t*, const int64_t*, int64_t) const { return true; }
  bool keeps(uint64_t, uint64_t) const { return true; }
};

template <class Parallel, class Found, class Scratch>
void undirected_kernel(const Parallel& parallel, const Edges& edges, int64_t* slot, Found& found,
                       const Scratch& scratch) {
  if (!distinct(parallel, edges, WithoutDirection(), edges.num_nodes, slot, found, scratch)) {
    report_bad_edges(edges);
  }
}

template <class Parallel, class Scratch>
void undirected_padded_kernel(const Parallel& parallel, const Edges& edges, int64_t* slot, const Padded& out,
                              const Scratch& scratch) {
  FoundInScratch<Scratch> found{scratch};
  undirected_kernel(parallel, edges, slot, found, scratch);
  found.pad(out, slot, edges.count);
}

}  // namespace gpn::cpu
