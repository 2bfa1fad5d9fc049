// From clusters back to nodes, on CUDA.
#pragma once

#include "reduce.cuh"

namespace gpn::cuda {

// out[i] = x[cluster[i]], 0 where the row is in no cluster.
// Registers: 40.
template <class T>
__global__ void lift(Segments<> segments, const T* x, T* out) {
  const int64_t width = segments.width;
  for (int64_t at = thread_index(); at < segments.rows * width; at += thread_count()) {
    const int64_t c = segments.cluster[at / width];
    const bool usable = assert_cluster_or_none(c, segments.num_clusters) && c >= 0;
    out[at] = usable ? x[c * width + at % width] : T(0);
  }
}

template <class T>
void lift_kernel(const Launcher& launch, const Segments<>& segments, const T* x, T* out) {
  launch(lift<T>, segments.rows * segments.width, segments, x, out);
}

}  // namespace gpn::cuda
