// Sums, maxima and counts over the rows of a cluster, on the CPU. Every result adds up its rows in ascending
// order: threads share the columns and the clusters among them, never the rows of one sum, so the bits do not
// depend on how many there are.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>

#include "../core/dominance.h"
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
  const Pieces pieces{num_clusters, parallel.tasks(num_clusters * width)};
  parallel(pieces.tasks, [&](int64_t task) {
    for (int64_t c = pieces.begin(task); c < pieces.end(task); ++c) {
      const Sum<T> size = sizes && sizes[c] > 0 ? Sum<T>(sizes[c]) : Sum<T>(1);
      for (int64_t k = c * width; k < (c + 1) * width; ++k) out[k] = T(sums[k] / size);
    }
  });
}

// out[i] = x[cluster[i]], 0 where the row is in no cluster.
template <class Parallel, class T>
void lift(const Parallel& parallel, const Segments<>& segments, const T* x, T* out) {
  const auto [cluster, rows, width, num_clusters] = segments;
  const Pieces pieces{rows, parallel.tasks(rows * width)};
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

// Runs f(e, c) for every edge e, where c is the cluster that holds both its ends, -1 if none does. False if a
// node id is out of range; clusters are trusted.
template <class Parallel, class F>
bool for_each_inner(const Parallel& parallel, const Edges& edges, const int64_t* cluster, const F& f) {
  std::atomic<bool> bad = false;
  for_each_piece(parallel, edges.count, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t count = std::min(kBlock, end - block);
      const int64_t* row = edges.row + block;
      const int64_t* col = edges.col + block;
      if (!ids_fit(row, count, edges.num_nodes) || !ids_fit(col, count, edges.num_nodes)) {
        bad = true;
        return;
      }
      for (int64_t i = 0; i < count; ++i) {
        if (i + kAhead < count) prefetch_read(cluster + col[i + kAhead]);
        const int64_t c = cluster[row[i]];
        f(block + i, c == cluster[col[i]] ? c : -1);
      }
    }
  });
  return !bad;
}

// Equation 4: total[c] = sum of the scores of the edges with slot c, in ascending edge order, and count[c]
// their number; both 1 where there are none.
template <class Parallel, class Id, class T>
void mask(const Parallel& parallel, const Id* slot, const T* scores, int64_t num_edges, int64_t num_clusters,
          T* total, Sum<T>* sum, int64_t* count) {
  for_each_share<int64_t>(parallel, num_edges, 1, num_clusters, [&](Share share) {
    std::fill(sum + share.first, sum + share.last, Sum<T>(0));
    std::fill(count + share.first, count + share.last, 0);
    Sum<T> other_sum =
        0;  // these take what is not this task's, so that there is no branch to be guessed wrong
    int64_t other_count = 0;
    for (int64_t e = 0; e < num_edges; ++e) {
      const bool own = share.has(slot[e]);
      *(own ? sum + slot[e] : &other_sum) += Sum<T>(scores[e]);
      ++*(own ? count + slot[e] : &other_count);
    }
    for (int64_t c = share.first; c < share.last; ++c) {
      total[c] = count[c] == 0 ? T(1) : T(sum[c]);
      count[c] = std::max<int64_t>(count[c], 1);
    }
  });
}

// grad_scores[e] = grad[c] for an edge inside cluster c, else 0. False if a node id is out of range; clusters
// are trusted.
template <class Parallel, class T>
bool mask_backward(const Parallel& parallel, const Edges& edges, const int64_t* cluster, const T* grad,
                   T* grad_scores) {
  return for_each_inner(parallel, edges, cluster,
                        [=](int64_t edge, int64_t c) { grad_scores[edge] = c < 0 ? T(0) : grad[c]; });
}

}  // namespace gpn::cpu
