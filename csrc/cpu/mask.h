// What the edges inside a cluster add up to, on the CPU.
#pragma once

#include "reduce.h"

namespace gpn::cpu {

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

// The same, where an edge that takes no part is inside no cluster. takes_part: of every edge, or null: all
// do.
template <class Parallel, class F>
bool for_each_inner(const Parallel& parallel, const Edges& edges, const int64_t* cluster,
                    const bool* takes_part, const F& f) {
  if (!takes_part) return for_each_inner(parallel, edges, cluster, f);
  return for_each_inner(parallel, edges, cluster,
                        [&](int64_t edge, int64_t c) { f(edge, takes_part[edge] ? c : -1); });
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
bool mask_backward(const Parallel& parallel, const Edges& edges, const int64_t* cluster,
                   const bool* takes_part, const T* grad, T* grad_scores) {
  return for_each_inner(parallel, edges, cluster, takes_part,
                        [=](int64_t edge, int64_t c) { grad_scores[edge] = c < 0 ? T(0) : grad[c]; });
}

template <class Id, class Parallel, class T, class Scratch>
void mask_as(const Parallel& parallel, const Edges& edges, const T* scores, const int64_t* cluster,
             int64_t num_clusters, const bool* takes_part, T* total, int64_t* count, const Scratch& scratch) {
  Id* slot = room<Id>(scratch, edges.count);
  if (!for_each_inner(parallel, edges, cluster, takes_part, [=](int64_t e, int64_t c) { slot[e] = Id(c); })) {
    report_bad_edges(edges);
  }
  mask(parallel, slot, scores, edges.count, num_clusters, total, room_for_sums(total, num_clusters, scratch),
       count);
}

// Here no order spares anything.
template <class Parallel, class T, class Scratch>
void mask_kernel(const Parallel& parallel, const Edges& edges, const T* scores, const int64_t* cluster,
                 int64_t num_clusters, const bool* takes_part, const uint32_t*, T* total, int64_t* count,
                 const Scratch& scratch) {
  check_clusters(parallel, cluster, edges.num_nodes, 0, num_clusters);
  if (num_clusters <= std::numeric_limits<int32_t>::max()) {
    mask_as<int32_t>(parallel, edges, scores, cluster, num_clusters, takes_part, total, count, scratch);
  } else {
    mask_as<int64_t>(parallel, edges, scores, cluster, num_clusters, takes_part, total, count, scratch);
  }
}

template <class Parallel, class T>
void mask_backward_kernel(const Parallel& parallel, const Edges& edges, const int64_t* cluster,
                          int64_t num_clusters, const bool* takes_part, const T* grad, T* grad_scores) {
  check_clusters(parallel, cluster, edges.num_nodes, 0, num_clusters);
  if (!mask_backward(parallel, edges, cluster, takes_part, grad, grad_scores)) report_bad_edges(edges);
}

}  // namespace gpn::cpu
