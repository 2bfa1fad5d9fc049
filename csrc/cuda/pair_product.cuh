// Products of the features of two nodes, row by row, on CUDA.
#pragma once

#include "pair_dot.cuh"

namespace gpn::cuda {

// out[p] = h[i] * h[j].
// Registers: 40.
template <class T>
__global__ void pair_product(Pairs pairs, const T* h, int64_t width, T* out) {
  for (int64_t at = thread_index(); at < pairs.count * width; at += thread_count()) {
    const int64_t p = at / width, k = at % width;
    out[at] = pair_in_range(pairs, p)
                  ? T(Sum<T>(h[pairs.first[p] * width + k]) * Sum<T>(h[pairs.second[p] * width + k]))
                  : T(0);
  }
}

// What an item adds to column k of its node: the gradient of the product times the other node.
template <class T>
struct ProductTerm {
  using Value = Sum<T>;
  Pairs pairs;
  const T* grad_product;  // [count, width]
  const T* h;
  int64_t width;
  __device__ Value operator()(int64_t item, int64_t k) const {
    const int64_t p = item / 2, other = item % 2 == 0 ? pairs.second[p] : pairs.first[p];
    return Value(grad_product[p * width + k]) * Value(h[other * width + k]);
  }
  __device__ static Value join(Value a, Value b) { return a + b; }
};

// grad_h += the gradient of a tile of products.
template <class Index, class T, class Scratch>
void pair_product_backward(const Launcher& launch, const Pairs& pairs, const T* grad_product, const T* h,
                           int64_t width, Sum<T>* grad_h, const Scratch& scratch) {
  add_both_ends<Index>(launch, pairs, width, ProductTerm<T>{pairs, grad_product, h, width}, AddTo<T>{grad_h},
                       scratch);
}

template <class T>
void pair_product_kernel(const Launcher& launch, const Pairs& pairs, const T* h, int64_t width, T* out) {
  launch(pair_product<T>, pairs.count * width, pairs, h, width, out);
}

template <class T, class Scratch>
void pair_product_backward_kernel(const Launcher& launch, const Pairs& pairs, const T* grad_product,
                                  const T* h, int64_t width, Sum<T>* grad_h, const Scratch& scratch) {
  with_index(std::max(2 * pairs.count, pairs.num_nodes), [&](auto index) {
    pair_product_backward<decltype(index)>(launch, pairs, grad_product, h, width, grad_h, scratch);
  });
}

}  // namespace gpn::cuda
