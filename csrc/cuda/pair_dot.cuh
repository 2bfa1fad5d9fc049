// Products of the features of two nodes, on CUDA. What a node gathers from its pairs is added in the order of
// the pairs, by the folds of reduce.cuh: both ends of a pair are items of their own.
#pragma once

#include "reduce.cuh"

namespace gpn::cuda {

// Whether both nodes of a pair may be used.
__device__ inline bool pair_in_range(const Pairs& pairs, int64_t p) {
  if (fits(pairs.first[p], pairs.num_nodes) && fits(pairs.second[p], pairs.num_nodes)) return true;
  __assert_fail("pairs: node ids from 0 to num_nodes - 1", __FILE__, __LINE__, "gpn::cuda");
  return false;
}

// out[p] = sum over k of h[i, k] * weight[k] * h[j, k]: a warp a pair, in a fixed order.
// Registers: 64.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    pair_dot(Pairs pairs, const T* h, const T* weight, int64_t width, T* out) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t p = thread_index() / kWarp; p < pairs.count; p += thread_count() / kWarp) {
    Sum<T> sum = 0;
    if (pair_in_range(pairs, p)) {
      const T* a = h + pairs.first[p] * width;
      const T* b = h + pairs.second[p] * width;
      for (int64_t k = lane; k < width; k += kWarp) sum += Sum<T>(a[k]) * Sum<T>(b[k]) * Sum<T>(weight[k]);
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (lane == 0) out[p] = T(sum);
  }
}

// Item 2p belongs to the first node of pair p, item 2p + 1 to the second.
// Registers: 40.
template <class Index>
__global__ void own_ends(Pairs pairs, Index* owner, Index* item) {
  for (int64_t i = thread_index(); i < 2 * pairs.count; i += thread_count()) {
    const int64_t p = i / 2;
    owner[i] = Index(!pair_in_range(pairs, p) ? pairs.num_nodes
                     : i % 2 == 0             ? pairs.first[p]
                                              : pairs.second[p]);
    item[i] = Index(i);
  }
}

// What an item adds to column k of its node: the gradient of the product times the other node.
template <class T>
struct DotTerm {
  using Value = Sum<T>;
  Pairs pairs;
  const T* grad;    // [count]
  const T* weight;  // [width]
  const T* h;
  int64_t width;
  __device__ Value operator()(int64_t item, int64_t k) const {
    const int64_t p = item / 2, other = item % 2 == 0 ? pairs.second[p] : pairs.first[p];
    return Value(grad[p]) * Value(weight[k]) * Value(h[other * width + k]);
  }
  __device__ static Value join(Value a, Value b) { return a + b; }
};

// Adds the terms of all pairs up, for every node and column.
template <class Index, class Term, class Store, class Scratch>
void add_both_ends(const Launcher& launch, const Pairs& pairs, int64_t width, Term term, Store store,
                   const Scratch& scratch) {
  Index* owner = room<Index>(scratch, 2 * pairs.count);
  Index* item = room<Index>(scratch, 2 * pairs.count);
  launch(own_ends<Index>, 2 * pairs.count, pairs, owner, item);
  const Runs<Index> runs = sort_by_owner(launch, owner, item, 2 * pairs.count, pairs.num_nodes, scratch);
  fold(launch, runs, width, term, store, scratch);
}

// ------------------------------------------------------------------------------------- the weight's gradient

// partial[tile, k] = sum over the pairs p of a tile of grad[p] * h[i, k] * h[j, k].
// Registers: 40.
template <class T>
__global__ void __launch_bounds__(kMostThreads, 1)
    sum_tiles(Pairs pairs, const T* grad, const T* h, int64_t width, int64_t tile, double* partial) {
  const int64_t tiles = (pairs.count + tile - 1) / tile;
  for (int64_t at = thread_index(); at < tiles * width; at += thread_count()) {
    const int64_t begin = at / width * tile, k = at % width;
    const int64_t end = begin + tile < pairs.count ? begin + tile : pairs.count;
    Sum<T> sum = 0;
    for (int64_t p = begin; p < end; ++p) {
      if (!fits(pairs.first[p], pairs.num_nodes) || !fits(pairs.second[p], pairs.num_nodes)) continue;
      sum += Sum<T>(grad[p]) * Sum<T>(h[pairs.first[p] * width + k]) * Sum<T>(h[pairs.second[p] * width + k]);
    }
    partial[at] = double(sum);
  }
}

// total[tile, k] = sum over the rows of a tile of partial[row, k].
// Registers: 64.
template <class Total>
__global__ void add_tiles(const double* partial, int64_t rows, int64_t width, int64_t tile, Total* total) {
  const int64_t tiles = (rows + tile - 1) / tile;
  for (int64_t at = thread_index(); at < tiles * width; at += thread_count()) {
    const int64_t begin = at / width * tile, k = at % width;
    const int64_t end = begin + tile < rows ? begin + tile : rows;
    double sum = 0;
    for (int64_t row = begin; row < end; ++row) sum += partial[row * width + k];
    total[at] = Total(Sum<Total>(sum));
  }
}

// grad_weight[k] = sum over all pairs; tile by tile, so that no thread adds more than a tile of terms.
template <class T, class Scratch>
void sum_pairs(const Launcher& launch, const Pairs& pairs, const T* grad, const T* h, int64_t width,
               T* grad_weight, const Scratch& scratch) {
  const int64_t tile = int64_t(1) << launch.piece_bits;
  const auto tiles_of = [=](int64_t rows) { return (rows + tile - 1) / tile; };
  if (pairs.count == 0) {
    launch(fill<T>, width, grad_weight, width, T(0));
    return;
  }
  int64_t rows = tiles_of(pairs.count);
  double* partial = room<double>(scratch, rows * width);
  launch(sum_tiles<T>, rows * width, pairs, grad, h, width, tile, partial);
  for (; rows > tile; rows = tiles_of(rows)) {
    double* total = room<double>(scratch, tiles_of(rows) * width);
    launch(add_tiles<double>, tiles_of(rows) * width, partial, rows, width, tile, total);
    partial = total;
  }
  launch(add_tiles<T>, width, partial, rows, width, tile, grad_weight);
}

// ------------------------------------------------------------------------------------------------ gradients

template <class Index, class T, class Scratch>
void pair_dot_backward(const Launcher& launch, const Pairs& pairs, const T* grad, const T* h, const T* weight,
                       int64_t width, T* grad_h, T* grad_weight, const Scratch& scratch) {
  add_both_ends<Index>(launch, pairs, width, DotTerm<T>{pairs, grad, weight, h, width},
                       StoreSum<T>{grad_h, false}, scratch);
  sum_pairs(launch, pairs, grad, h, width, grad_weight, scratch);
}

template <class T>
void pair_dot_kernel(const Launcher& launch, const Pairs& pairs, const T* h, const T* weight, int64_t width,
                     T* out) {
  launch(pair_dot<T>, pairs.count * kWarp, pairs, h, weight, width, out);
}

template <class T, class Scratch>
void pair_dot_backward_kernel(const Launcher& launch, const Pairs& pairs, const T* grad, const T* h,
                              const T* weight, int64_t width, T* grad_h, T* grad_weight,
                              const Scratch& scratch) {
  with_index(std::max(2 * pairs.count, pairs.num_nodes), [&](auto index) {
    pair_dot_backward<decltype(index)>(launch, pairs, grad, h, weight, width, grad_h, grad_weight, scratch);
  });
}

}  // namespace gpn::cuda
