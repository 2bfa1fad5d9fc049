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

// A lane's columns of the first node's row, which it keeps from pair to pair; further ones are read again.
constexpr int kHeldColumns = 4;
constexpr int64_t kWarpsWanted = 8192;

// How many neighbouring pairs a warp takes: few where there would be too few warps.
inline int64_t pairs_of_warp(int64_t count) { return std::clamp<int64_t>(count / kWarpsWanted, 1, kWarp); }

// out[p] = sum over k of h[i, k] * weight[k] * h[j, k]: each in a fixed order, by a warp that takes `stretch`
// pairs, at most kWarp. Those that have their first node in common read its row once.
// Registers: 64.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    pair_dot(Pairs pairs, const T* h, const T* weight, int64_t width, int64_t stretch, T* out) {
  const int lane = threadIdx.x % kWarp;
  Sum<T> held[kHeldColumns] = {};
  int64_t holds = -1;  // whose row that is
  for (int64_t begin = thread_index() / kWarp * stretch; begin < pairs.count;
       begin += thread_count() / kWarp * stretch) {
    const int count = int(pairs.count - begin < stretch ? pairs.count - begin : stretch);
    // A lane reads a pair, and has its result in the end.
    const bool usable = lane < count && pair_in_range(pairs, begin + lane);
    const int64_t first = usable ? pairs.first[begin + lane] : -1;
    const int64_t second = usable ? pairs.second[begin + lane] : -1;
    Sum<T> own = 0;
    for (int q = 0; q < count; ++q) {
      const int64_t i = __shfl_sync(0xffffffffu, first, q), j = __shfl_sync(0xffffffffu, second, q);
      if (i < 0) continue;
      const T* a = h + i * width;
      const T* b = h + j * width;
      if (i != holds) {
        for (int c = 0; c < kHeldColumns; ++c) {
          const int64_t k = lane + c * kWarp;
          if (k < width) held[c] = Sum<T>(a[k]);
        }
        holds = i;
      }
      Sum<T> sum = 0;
      for (int c = 0; c < kHeldColumns; ++c) {
        const int64_t k = lane + c * kWarp;
        if (k < width) sum += held[c] * Sum<T>(b[k]) * Sum<T>(weight[k]);
      }
      for (int64_t k = lane + kHeldColumns * kWarp; k < width; k += kWarp) {
        sum += Sum<T>(a[k]) * Sum<T>(b[k]) * Sum<T>(weight[k]);
      }
      for (int bits = kWarp / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
      if (lane == q) own = sum;
    }
    if (lane < count) out[begin + lane] = T(own);
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

// What an item adds to column k of its node: the pair's gradient times the other node.
template <class T>
struct DotTerm {
  using Value = Sum<T>;
  Pairs pairs;
  const T* grad;  // [count]
  const T* h;
  int64_t width;
  __device__ Value operator()(int64_t item, int64_t k) const {
    const int64_t p = item / 2, other = item % 2 == 0 ? pairs.second[p] : pairs.first[p];
    return Value(grad[p]) * Value(h[other * width + k]);
  }
  __device__ static Value join(Value a, Value b) { return a + b; }
};

// The ends of all pairs, in the order of their nodes.
template <class Index, class Scratch>
Runs<Index> sort_ends(const Launcher& launch, const Pairs& pairs, const Scratch& scratch) {
  Index* owner = room<Index>(scratch, 2 * pairs.count);
  Index* item = room<Index>(scratch, 2 * pairs.count);
  launch(own_ends<Index>, 2 * pairs.count, pairs, owner, item);
  return sort_by_owner(launch, owner, item, 2 * pairs.count, pairs.num_nodes, scratch);
}

// Adds the terms of all pairs up, for every node and column.
template <class Index, class Term, class Store, class Scratch>
void add_both_ends(const Launcher& launch, const Pairs& pairs, int64_t width, Term term, Store store,
                   const Scratch& scratch) {
  fold(launch, sort_ends<Index>(launch, pairs, scratch), width, term, store, scratch);
}

// ------------------------------------------------------------------------------------------------ gradients

// Nodes of a thread, each with at most a piece of terms.
constexpr int64_t kNodesOfThread = 4;

// The sum of a node's terms gives its row of grad_h, times the weight, and a term of the weight's gradient,
// times the node's own row: half of it, as a pair is in the sums of both ends. partial[tile, k] is that of
// kNodesOfThread nodes.
// Registers: 64.
template <class Index, class T>
__global__ void __launch_bounds__(kMostThreads, 1)
    fold_nodes(Runs<Index> runs, Levels<Sum<T>> levels, DotTerm<T> term, const T* weight, T* grad_h,
               Sum<T>* partial) {
  const int64_t width = term.width, tiles = (runs.num_owners + kNodesOfThread - 1) / kNodesOfThread;
  for (int64_t at = thread_index(); at < tiles * width; at += thread_count()) {
    const int64_t begin = at / width * kNodesOfThread, k = at % width;
    Sum<T> total = 0;
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int64_t i = begin; i < begin + kNodesOfThread && i < runs.num_owners; ++i) {
      const bool has_terms = run_at(runs, i, 0, levels.bits).length > 0;
      const Sum<T> sum =
          has_terms ? fold_rest(runs, levels, i, k, width, term, StoreSum<T>{nullptr, false}) : Sum<T>(0);
      grad_h[i * width + k] = T(sum * Sum<T>(weight[k]));
      total += sum * Sum<T>(term.h[i * width + k]);
    }
    partial[at] = total / 2;
  }
}

// total[tile, k] = sum over the rows of a tile of partial[row, k].
// Registers: 64.
template <class Partial, class Total>
__global__ void add_tiles(const Partial* partial, int64_t rows, int64_t width, int64_t tile, Total* total) {
  const int64_t tiles = (rows + tile - 1) / tile;
  for (int64_t at = thread_index(); at < tiles * width; at += thread_count()) {
    const int64_t begin = at / width * tile, k = at % width;
    const int64_t end = begin + tile < rows ? begin + tile : rows;
    double sum = 0;
    for (int64_t row = begin; row < end; ++row) sum += double(partial[row * width + k]);
    total[at] = Total(Sum<Total>(sum));
  }
}

// out[k] = sum over rows of partial[row, k]; tile by tile, so that no thread adds more than a tile of terms.
template <class Partial, class T, class Scratch>
void sum_rows(const Launcher& launch, const Partial* partial, int64_t rows, int64_t width, T* out,
              const Scratch& scratch) {
  const int64_t tile = int64_t(1) << launch.piece_bits, tiles = (rows + tile - 1) / tile;
  if (tiles <= 1)
    return launch(add_tiles<Partial, T>, width, partial, rows, width, std::max<int64_t>(rows, 1), out);
  double* total = room<double>(scratch, tiles * width);
  launch(add_tiles<Partial, double>, tiles * width, partial, rows, width, tile, total);
  sum_rows(launch, static_cast<const double*>(total), tiles, width, out, scratch);
}

template <class Index, class T, class Scratch>
void pair_dot_backward(const Launcher& launch, const Pairs& pairs, const T* grad, const T* h, const T* weight,
                       int64_t width, T* grad_h, T* grad_weight, const Scratch& scratch) {
  if (pairs.num_nodes == 0) return launch(fill<T>, width, grad_weight, width, T(0));
  const DotTerm<T> term{pairs, grad, h, width};
  const Runs<Index> runs = sort_ends<Index>(launch, pairs, scratch);
  const Levels<Sum<T>> levels = fold_long_runs(launch, runs, width, term, scratch);
  const int64_t tiles = (pairs.num_nodes + kNodesOfThread - 1) / kNodesOfThread;
  Sum<T>* partial = room<Sum<T>>(scratch, tiles * width);
  launch(fold_nodes<Index, T>, tiles * width, runs, levels, term, weight, grad_h, partial);
  sum_rows(launch, static_cast<const Sum<T>*>(partial), tiles, width, grad_weight, scratch);
}

template <class T>
void pair_dot_kernel(const Launcher& launch, const Pairs& pairs, const T* h, const T* weight, int64_t width,
                     T* out) {
  const int64_t stretch = pairs_of_warp(pairs.count);
  const int64_t warps = (pairs.count + stretch - 1) / stretch;
  launch(pair_dot<T>, warps * kWarp, pairs, h, weight, width, stretch, out);
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
