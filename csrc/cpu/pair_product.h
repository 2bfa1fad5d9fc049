// Products of the features of two nodes, row by row, on the CPU.
#pragma once

#include "pair_dot.h"

namespace gpn::cpu {

// out[p] = h[i] * h[j], where `out` may be wider than h.
template <class Parallel, class T, class Out>
void pair_product(const Parallel& parallel, const T* h, const Pairs& pairs, int64_t width, Out* out) {
  const Pieces pieces{pairs.count, parallel.shares(pairs.count * width)};
  parallel(pieces.tasks, [&](int64_t task) {
    for (int64_t p = pieces.begin(task); p < pieces.end(task); ++p) {
      if (p + kRowsAhead < pieces.end(task)) {
        prefetch_read(h + pairs.first[p + kRowsAhead] * width);
        prefetch_read(h + pairs.second[p + kRowsAhead] * width);
      }
      const T* a = h + pairs.first[p] * width;
      const T* b = h + pairs.second[p] * width;
      for (int64_t k = 0; k < width; ++k) out[p * width + k] = Out(Sum<T>(a[k]) * Sum<T>(b[k]));
    }
  });
}

template <class Parallel, class T>
void pair_product_kernel(const Parallel& parallel, const Pairs& pairs, const T* h, int64_t width, T* out) {
  check_pairs(parallel, pairs);
  pair_product(parallel, h, pairs, width, out);
}

template <class Parallel, class T, class Scratch>
void pair_product_backward_kernel(const Parallel& parallel, const Pairs& pairs, const T* grad_product,
                                  const T* h, int64_t width, Sum<T>* grad_h, const Scratch&) {
  check_pairs(parallel, pairs);
  add_both_ends(
      parallel, h, pairs, pairs.num_nodes, width,
      [=](int64_t p, int64_t k) { return Sum<T>(grad_product[p * width + k]); }, grad_h);
}

}  // namespace gpn::cpu
