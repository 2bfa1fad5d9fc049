// From clusters back to nodes, on the CPU.
#pragma once

#include "reduce.h"

namespace gpn::cpu {

// out[i] = x[cluster[i]], 0 where the row is in no cluster.
template <class Parallel, class T>
void lift(const Parallel& parallel, const Segments<>& segments, const T* x, T* out) {
  const auto [cluster, rows, width, num_clusters] = segments;
  const Pieces pieces{rows, parallel.shares(rows * width)};
  parallel(pieces.tasks, [&, cluster = cluster, width = width](int64_t task) {
    for (int64_t i = pieces.begin(task); i < pieces.end(task); ++i) {
      if (cluster[i] < 0) {
        std::fill(out + i * width, out + (i + 1) * width, T(0));
      } else {
        std::copy_n(x + cluster[i] * width, width, out + i * width);
      }
    }
  });
}

template <class Parallel, class T>
void lift_kernel(const Parallel& parallel, const Segments<>& segments, const T* x, T* out) {
  check_clusters(parallel, segments.cluster, segments.rows, -1, segments.num_clusters);
  lift(parallel, segments, x, out);
}

}  // namespace gpn::cpu
