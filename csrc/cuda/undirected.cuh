// The undirected edges of an edge list, on CUDA.
#pragma once

#include "unique_edges.cuh"

namespace gpn::cuda {

// An edge seen as an unordered pair: it and its reverse are one.
struct WithoutDirection {
  __device__ uint64_t operator()(EdgeKeys keys, int64_t row, int64_t col, int64_t, int64_t) const {
    return row < col ? keys.key(row, col) : keys.key(col, row);
  }
};

template <class Found, class Scratch>
void undirected_kernel(const Launcher& launch, const Edges& edges, int64_t* slot, Found& found,
                       const Scratch& scratch) {
  distinct(launch, edges, WithoutDirection(), nullptr, slot, nullptr, found, scratch);
}

template <class Scratch>
void undirected_padded_kernel(const Launcher& launch, const Edges& edges, int64_t* slot, const Padded& out,
                              const Scratch& scratch) {
  distinct_padded(launch, edges, WithoutDirection(), nullptr, slot, nullptr, out, scratch);
}

}  // namespace gpn::cuda
