// Products of the features of two nodes, on the CPU. What a node gathers from its pairs is added in the order
// of the pairs: threads share columns and nodes among them, never the terms of one sum.
#pragma once

#include <atomic>
#include <vector>

#include "reduce.h"

namespace gpn::cpu {

template <class Parallel>
void check_pairs(const Parallel& parallel, const Pairs& pairs) {
  if (!all_fit(parallel, pairs.first, pairs.count, 0, pairs.num_nodes) ||
      !all_fit(parallel, pairs.second, pairs.count, 0, pairs.num_nodes)) {
    report_bad_ends("pairs", pairs.first, pairs.second, pairs.count, pairs.num_nodes);
  }
}

// Sums `width` terms in a fixed order: kLanes partial sums that vectorise, then a tree.
constexpr int64_t kLanes = 16;

template <class T, class Term>
[[gnu::always_inline]] inline T sum_lanes(int64_t width, const Term& term) {
  T lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(k + lane);
  }
  for (int64_t lane = 0; k + lane < width; ++lane) lanes[lane] += term(k + lane);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
[[gnu::always_inline]] inline void dot_rows(const T* h, const T* weight, const Pairs& pairs, int64_t width,
                                            int64_t begin, int64_t end, T* out) {
  for (int64_t p = begin; p < end; ++p) {
    if (p + kRowsAhead < end) {
      prefetch_read(h + pairs.first[p + kRowsAhead] * width);
      prefetch_read(h + pairs.second[p + kRowsAhead] * width);
    }
    const T* a = h + pairs.first[p] * width;
    const T* b = h + pairs.second[p] * width;
    out[p] = T(
        sum_lanes<Sum<T>>(width, [=](int64_t k) { return Sum<T>(a[k]) * Sum<T>(b[k]) * Sum<T>(weight[k]); }));
  }
}

// out[p] = sum over k of h[i, k] * weight[k] * h[j, k].
template <class Parallel, class T>
void pair_dot(const Parallel& parallel, const T* h, const T* weight, const Pairs& pairs, int64_t width,
              T* out) {
  const Pieces pieces{pairs.count, parallel.shares(pairs.count * width)};
  parallel(pieces.tasks, [&](int64_t task) {
    dot_rows(h, weight, pairs, width, pieces.begin(task), pieces.end(task), out);
  });
}

// grad_h[i] += g(p) * h[j] and grad_h[j] += g(p) * h[i], pair after pair; g(p, k) is the gradient of the
// product, [count, width].
template <class Parallel, class T, class Gradient>
void add_both_ends(const Parallel& parallel, const T* h, const Pairs& pairs, int64_t num_nodes, int64_t width,
                   const Gradient& g, Sum<T>* grad_h) {
  for_each_share<T>(parallel, pairs.count, width, num_nodes, [&](Share share) {
    for (int64_t p = 0; p < pairs.count; ++p) {
      const int64_t i = pairs.first[p], j = pairs.second[p];
      const T* hi = h + i * width;
      const T* hj = h + j * width;
      Sum<T>* gi = grad_h + i * width;
      Sum<T>* gj = grad_h + j * width;
      if (share.has(i)) {
        for (int64_t k = share.begin; k < share.end; ++k) gi[k] += g(p, k) * Sum<T>(hj[k]);
      }
      if (share.has(j)) {
        for (int64_t k = share.begin; k < share.end; ++k) gj[k] += g(p, k) * Sum<T>(hi[k]);
      }
    }
  });
}

// grad_weight[k] = sum over p of grad[p] * h[i, k] * h[j, k]: in tiles of a fixed length, which are then
// added up in order.
constexpr int64_t kPairTile = 1024;

template <class Parallel, class T>
void pair_dot_weight_backward(const Parallel& parallel, const T* grad, const T* h, const Pairs& pairs,
                              int64_t width, T* grad_weight) {
  const int64_t tiles = (pairs.count + kPairTile - 1) / kPairTile;
  std::vector<Sum<T>> partial(tiles * width, 0);
  const Pieces pieces{tiles, std::min(parallel.shares(pairs.count * width), std::max<int64_t>(tiles, 1))};
  parallel(pieces.tasks, [&](int64_t task) {
    for (int64_t tile = pieces.begin(task); tile < pieces.end(task); ++tile) {
      Sum<T>* sum = partial.data() + tile * width;
      const int64_t end = std::min((tile + 1) * kPairTile, pairs.count);
      for (int64_t p = tile * kPairTile; p < end; ++p) {
        const T* a = h + pairs.first[p] * width;
        const T* b = h + pairs.second[p] * width;
        const Sum<T> g = Sum<T>(grad[p]);
        for (int64_t k = 0; k < width; ++k) sum[k] += g * Sum<T>(a[k]) * Sum<T>(b[k]);
      }
    }
  });
  for (int64_t k = 0; k < width; ++k) {
    double total = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) total += partial[tile * width + k];
    grad_weight[k] = T(Sum<T>(total));
  }
}

template <class Parallel, class T>
void pair_dot_kernel(const Parallel& parallel, const Pairs& pairs, const T* h, const T* weight, int64_t width,
                     T* out) {
  check_pairs(parallel, pairs);
  pair_dot(parallel, h, weight, pairs, width, out);
}

template <class Parallel, class T, class Scratch>
void pair_dot_backward_kernel(const Parallel& parallel, const Pairs& pairs, const T* grad, const T* h,
                              const T* weight, int64_t width, T* grad_h, T* grad_weight,
                              const Scratch& scratch) {
  check_pairs(parallel, pairs);
  Sum<T>* sums = room_for_sums(grad_h, pairs.num_nodes * width, scratch);
  clear(parallel, sums, pairs.num_nodes * width);
  add_both_ends(
      parallel, h, pairs, pairs.num_nodes, width,
      [=](int64_t p, int64_t k) { return Sum<T>(grad[p]) * Sum<T>(weight[k]); }, sums);
  finish_sums(parallel, sums, nullptr, pairs.num_nodes, width, grad_h);
  pair_dot_weight_backward(parallel, grad, h, pairs, width, grad_weight);
}

}  // namespace gpn::cpu
