// Sums, maxima and counts over the rows of a cluster, on the CPU. Every result adds up its rows in ascending
// order: threads share the columns and the clusters among them, never the rows of one sum, so the bits do not
// depend on how many there are.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>

#include "../core/errors.h"
#include "../core/sums.h"
#include "blocks.h"
#include "parallel.h"

namespace gpn::cpu {

// What one task owns of an output [owners, width].
struct Share {
  int64_t first, last;  // owners
  int64_t begin, end;   // columns

  bool has(int64_t owner) const { return uint64_t(owner) - uint64_t(first) < uint64_t(last - first); }
};

// Runs f(share) such that the shares make up the whole output. Columns are shared first, at least a cache
// line each: a task that owns only some rows has to look at all of them to find its own.
template <class Value, class Parallel, class F>
void for_each_share(const Parallel& parallel, int64_t rows, int64_t width, int64_t owners, const F& f) {
  const int64_t tasks = parallel.tasks(rows * width);
  const int64_t across = std::clamp<int64_t>(width * sizeof(Value) / 64, 1, tasks);
  const Pieces columns{width, across};
  const Pieces ranges{owners, std::clamp<int64_t>(tasks / across, 1, std::max<int64_t>(owners, 1))};
  parallel(columns.tasks * ranges.tasks, [&](int64_t task) {
    const int64_t column = task % across, range = task / across;
    f(Share{ranges.begin(range), ranges.end(range), columns.begin(column), columns.end(column)});
  });
}

// Whether all ids lie in [lowest, size), where lowest is 0 or -1.
template <class Parallel>
bool all_fit(const Parallel& parallel, const int64_t* id, int64_t count, int64_t lowest, int64_t size) {
  std::atomic<bool> bad = false;
  for_each_piece(parallel, count, [&](int64_t begin, int64_t end) {
    uint64_t signs = 0;
    for (int64_t i = begin; i < end; ++i) {
      signs |= (uint64_t(id[i]) - uint64_t(lowest)) | (uint64_t(size - 1) - uint64_t(id[i]));
    }
    if (int64_t(signs) < 0) bad = true;
  });
  return !bad;
}

// A cluster of -1 means none.
template <class Parallel>
void check_clusters(const Parallel& parallel, const int64_t* cluster, int64_t rows, int64_t lowest,
                    int64_t num_clusters) {
  if (!all_fit(parallel, cluster, rows, lowest, num_clusters)) {
    report_bad_clusters(cluster, rows, lowest, "num_clusters", num_clusters);
  }
}

template <class Parallel, class T>
void clear(const Parallel& parallel, T* values, int64_t count) {
  for_each_piece(parallel, count,
                 [&](int64_t begin, int64_t end) { std::fill(values + begin, values + end, T(0)); });
}

// How far ahead of its use an output row is fetched.
constexpr int64_t kRowsAhead = 8;

// out[cluster[i]] += x[i] in ascending i. out: [num_clusters, width].
template <class Parallel, class T, class Id>
void accumulate(const Parallel& parallel, const Segments<Id>& segments, const T* x, Sum<T>* out) {
  const auto [cluster, rows, width, num_clusters] = segments;
  for_each_share<T>(
      parallel, rows, width, num_clusters, [&, cluster = cluster, rows = rows, width = width](Share share) {
        if (width == 1) {
          Sum<T> others = 0;  // takes what is not this task's, so that there is no branch to be guessed wrong
          for (int64_t i = 0; i < rows; ++i) {
            Sum<T>* target = share.has(cluster[i]) ? out + cluster[i] : &others;
            *target += Sum<T>(x[i]);
          }
          return;
        }
        for (int64_t i = 0; i < rows; ++i) {
          if (i + kRowsAhead < rows && share.has(cluster[i + kRowsAhead])) {
            prefetch(out + cluster[i + kRowsAhead] * width + share.begin);
          }
          if (!share.has(cluster[i])) continue;
          Sum<T>* target = out + cluster[i] * width;
          for (int64_t k = share.begin; k < share.end; ++k) target[k] += Sum<T>(x[i * width + k]);
        }
      });
}

// sizes[c] = how many rows cluster c has.
template <class Parallel, class Id>
void count_rows(const Parallel& parallel, const Id* cluster, int64_t rows, int64_t num_clusters,
                int64_t* sizes) {
  for_each_share<int64_t>(parallel, rows, 1, num_clusters, [&](Share share) {
    std::fill(sizes + share.first, sizes + share.last, 0);
    int64_t others = 0;
    for (int64_t i = 0; i < rows; ++i) ++*(share.has(cluster[i]) ? sizes + cluster[i] : &others);
  });
}

// out[c] = maximum over the rows of cluster c, elementwise; 0 where sizes[c] is 0.
template <class Parallel, class T>
void maximum(const Parallel& parallel, const Segments<>& segments, const T* x, const int64_t* sizes, T* out) {
  const auto [cluster, rows, width, num_clusters] = segments;
  for_each_share<T>(parallel, rows, width, num_clusters,
                    [&, cluster = cluster, rows = rows, width = width](Share share) {
                      for (int64_t c = share.first; c < share.last; ++c) {
                        const T start = sizes[c] == 0 ? T(0) : T(-std::numeric_limits<Sum<T>>::infinity());
                        std::fill(out + c * width + share.begin, out + c * width + share.end, start);
                      }
                      for (int64_t i = 0; i < rows; ++i) {
                        if (!share.has(cluster[i])) continue;
                        T* best = out + cluster[i] * width;
                        for (int64_t k = share.begin; k < share.end; ++k)
                          best[k] = above(x[i * width + k], best[k]) ? x[i * width + k] : best[k];
                      }
                    });
}

// grad_x[i] = grad[c] where x[i] is the first of its cluster's rows to reach the maximum, else 0. taken:
// scratch like maximum.
template <class Parallel, class T>
void maximum_backward(const Parallel& parallel, const Segments<>& segments, const T* grad, const T* x,
                      const T* maximum, bool* taken, T* grad_x) {
  const auto [cluster, rows, width, num_clusters] = segments;
  clear(parallel, grad_x, rows * width);
  for_each_share<T>(parallel, rows, width, num_clusters,
                    [&, cluster = cluster, rows = rows, width = width](Share share) {
                      for (int64_t c = share.first; c < share.last; ++c) {
                        std::fill(taken + c * width + share.begin, taken + c * width + share.end, false);
                      }
                      for (int64_t i = 0; i < rows; ++i) {
                        if (!share.has(cluster[i])) continue;
                        for (int64_t k = share.begin; k < share.end; ++k) {
                          const int64_t at = cluster[i] * width + k;
                          if (taken[at] || !equals_maximum(x[i * width + k], maximum[at])) continue;
                          taken[at] = true;
                          grad_x[i * width + k] = grad[at];
                        }
                      }
                    });
}

// out = the sums, divided by the sizes if there are any, in the type of the values. May be in place.
template <class Parallel, class T>
void finish_sums(const Parallel& parallel, const Sum<T>* sums, const int64_t* sizes, int64_t num_clusters,
                 int64_t width, T* out) {
  if (std::is_same_v<T, Sum<T>> && !sizes) return;  // out is where the sums are
  const Pieces pieces{num_clusters, parallel.shares(num_clusters * width)};
  parallel(pieces.tasks, [&](int64_t task) {
    for (int64_t c = pieces.begin(task); c < pieces.end(task); ++c) {
      const Sum<T> size = sizes && sizes[c] > 0 ? Sum<T>(sizes[c]) : Sum<T>(1);
      for (int64_t k = c * width; k < (c + 1) * width; ++k) out[k] = T(sums[k] / size);
    }
  });
}

// Where sums are taken: in place, or in memory of their own if they need another type.
template <class T, class Scratch>
Sum<T>* room_for_sums(T* out, int64_t count, const Scratch& scratch) {
  if constexpr (std::is_same_v<T, Sum<T>>) {
    return out;
  } else {
    return room<Sum<T>>(scratch, count);
  }
}

// out[c] = sum, mean or maximum over the rows of cluster c; 0 where there are none.
template <class Parallel, class T, class Scratch>
void reduce_kernel(const Parallel& parallel, const Segments<>& segments, const T* x, Reduction reduction,
                   T* out, const Scratch& scratch) {
  const int64_t num_clusters = segments.num_clusters, width = segments.width;
  check_clusters(parallel, segments.cluster, segments.rows, -1, num_clusters);
  int64_t* sizes = nullptr;
  if (reduction != Reduction::kSum) {
    sizes = room<int64_t>(scratch, num_clusters);
    count_rows(parallel, segments.cluster, segments.rows, num_clusters, sizes);
  }
  if (reduction == Reduction::kMax) return maximum(parallel, segments, x, sizes, out);
  Sum<T>* sums = room_for_sums(out, num_clusters * width, scratch);
  clear(parallel, sums, num_clusters * width);
  accumulate(parallel, segments, x, sums);
  finish_sums(parallel, sums, sizes, num_clusters, width, out);
}

template <class Parallel, class T, class Scratch>
void reduce_max_backward_kernel(const Parallel& parallel, const Segments<>& segments, const T* grad,
                                const T* x, const T* highest, T* grad_x, const Scratch& scratch) {
  check_clusters(parallel, segments.cluster, segments.rows, -1, segments.num_clusters);
  maximum_backward(parallel, segments, grad, x, highest,
                   room<bool>(scratch, segments.num_clusters * segments.width), grad_x);
}

template <class Parallel, class T, class Scratch>
void accumulate_kernel(const Parallel& parallel, const Segments<>& segments, const T* x, Sum<T>* out,
                       const Scratch&) {
  check_clusters(parallel, segments.cluster, segments.rows, -1, segments.num_clusters);
  accumulate(parallel, segments, x, out);
}

template <class Parallel>
void cluster_sizes_kernel(const Parallel& parallel, const Segments<>& segments, int64_t* sizes) {
  check_clusters(parallel, segments.cluster, segments.rows, -1, segments.num_clusters);
  count_rows(parallel, segments.cluster, segments.rows, segments.num_clusters, sizes);
}

}  // namespace gpn::cpu
