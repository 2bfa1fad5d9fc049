// LayerNorm(x + MLP(x)) on CUDA, and its sums over clusters: rows in, rows or sums out, and backward. A warp
// takes kRows rows through all layers, and computes them anew in backward.
//
// Rows that are added up come in the order of their clusters. A block takes one chunk of them after the other
// and finishes all clusters of a chunk but the first and the last one, which other chunks may have a part of:
// those parts go to memory, to be added in a fixed order. Backward needs no order.
#pragma once

#include "../core/residual.h"
#include "mlp.cuh"
#include "reduce.cuh"

namespace gpn::cuda {

constexpr int kResidualBytes = 46 << 10;  // shared memory of a block; more would need an opt-in

// The LayerNorm is the last layer's.
template <class W>
std::vector<HiddenLayer<W>> layers_of(const Residual<W>& block) {
  std::vector<HiddenLayer<W>> layers;
  for (const W* bias : block.bias) layers.push_back({bias, nullptr, nullptr});
  layers.back().norm_weight = block.norm_weight;
  layers.back().norm_bias = block.norm_bias;
  return layers;
}

// Where a block keeps its rows.
template <class W>
struct BlockRows {
  W* memory;
  int rows, stride;
  __device__ W* buffer(int number) const { return memory + int64_t(number) * rows * stride; }
};

// The row of x with a number, zeros after it; only zeros where the number is negative.
template <class T>
__device__ void load_row(const T* x, int64_t number, int64_t width, int stride, int lane, Sum<T>* row) {
  for (int k = lane; k < stride; k += kWarp) {
    row[k] = number >= 0 && k < width ? Sum<T>(x[number * width + k]) : Sum<T>(0);
  }
}

// z = dropout(ReLU(z + bias)). The first value has the place `first`.
template <class W>
__device__ void activate_linear(const W* bias, const Activation<W>& activation, int64_t first, int64_t width,
                                int lane, W* z) {
  for (int64_t k = lane; k < width; k += kWarp) {
    z[k] = Dropout<W>::positive(z[k] + bias[k]) * activation.factor(first + k);
  }
}

// total += x + bias, less its mean and times a factor that makes its variance 1. Gives the factor.
template <class W>
__device__ W normalise_total(const W* bias, const W* x, int64_t width, int lane, W* total) {
  for (int64_t k = lane; k < width; k += kWarp) total[k] += x[k];
  return normalise_row(bias, width, lane, total);
}

// -------------------------------------------------------------------------------------------------- forward

// x, then by turns what comes out of the layers.
GPN_HOST_DEVICE int buffer_of(int64_t layer) { return layer == 0 ? 0 : 1 + int(layer - 1) % 2; }
GPN_HOST_DEVICE int64_t forward_buffers(int64_t layers) { return layers > 1 ? 3 : 2; }

// Where sums over clusters go. At null where there are none.
template <class Index, class W>
struct OpenSums {
  W* sums;        // [2 * chunks, width]: of the first cluster of a chunk, and of the last one if that differs
  Index* owner;   // [2 * chunks]
  Index* number;  // [2 * chunks]: 0, 1, ...
};

// runs: the rows in the order of their clusters; `owner` and `item` are null where each is a result.
// spill: memory for the rows where a block's shared memory is too small, else null.
// Registers: 240.
template <class Index, class T>
__global__ void __launch_bounds__(kMlpThreads, kResident)
    residual_rows(Runs<Index> runs, int64_t chunks, int chunk_items, const T* x, PackedLayers<Sum<T>> layers,
                  Activation<Sum<T>> activation, Sum<T>* spill, OpenSums<Index, Sum<T>> open, T* out) {
  using W = Sum<T>;
  __shared__ Four<W> shared[kResidualBytes / sizeof(Four<W>)];
  __shared__ int64_t owners[kMlpThreads / kWarp * kRows<W>];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t width = layers.width;
  const int stride = int(layers.stride()), last = int(layers.count) - 1;
  const int rows = int(blockDim.x) / kWarp * kRows<W>, own = warp * kRows<W>;
  const int64_t block_values = (forward_buffers(layers.count) * rows + 1) * stride;
  const BlockRows<W> memory{
      spill != nullptr ? spill + blockIdx.x * block_values : reinterpret_cast<W*>(shared), rows, stride};
  W* sum_so_far = memory.buffer(int(forward_buffers(layers.count)));
  const bool sums_up = runs.owner != nullptr;
  const int64_t count = sums_up ? int64_t(runs.begin[runs.num_owners]) : runs.count;

  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t begin = chunk * chunk_items;
    const int size = begin >= count ? 0 : int(count - begin < chunk_items ? count - begin : chunk_items);
    if (sums_up && threadIdx.x < 2) {
      const int64_t at = begin + (threadIdx.x == 0 ? 0 : size - 1);
      open.owner[2 * chunk + threadIdx.x] = size > 0 ? runs.owner[at] : Index(runs.num_owners);
      open.number[2 * chunk + threadIdx.x] = Index(2 * chunk + threadIdx.x);
    }
    if (size == 0) continue;
    int64_t owner = sums_up ? int64_t(runs.owner[begin]) : 0;  // whose sum `sum_so_far` is
    bool is_first = true;                                      // of the chunk
    for (int64_t k = threadIdx.x; k < width; k += blockDim.x) sum_so_far[k] = 0;

    for (int step = 0; step < size; step += rows) {
      const auto row_at = [&](int r) {
        const int64_t at = begin + step + own + r;
        return step + own + r >= size ? -1 : sums_up ? int64_t(runs.item[at]) : at;
      };
      GPN_NO_UNROLL
      for (int r = 0; r < kRows<W>; ++r) {
        const int64_t row = row_at(r);
        load_row(x, row, width, stride, lane, memory.buffer(0) + (own + r) * stride);
        if (sums_up && lane == 0) {
          owners[own + r] = row < 0 ? runs.num_owners : int64_t(runs.owner[begin + step + own + r]);
        }
      }
      __syncwarp();
      for (int layer = 0; layer <= last; ++layer) {
        W* to = memory.buffer(buffer_of(layer + 1)) + own * stride;
        multiply_rows(memory.buffer(buffer_of(layer)) + own * stride, layers.transposed(layer), stride, lane,
                      to);
        __syncwarp();
        GPN_NO_UNROLL
        for (int r = 0; r < kRows<W>; ++r, to += stride) {
          const int64_t row = row_at(r);
          if (layer < last) {
            activate_linear(layers.bias(layer), activation, Scorer<W>::place(layer, row < 0 ? 0 : row, width),
                            width, lane, to);
            continue;
          }
          normalise_total(layers.bias(layer), memory.buffer(0) + (own + r) * stride, width, lane, to);
          const W *weight = layers.norm_weight(layer), *bias = layers.norm_bias(layer);
          for (int64_t k = lane; k < width; k += kWarp) {
            const W y = to[k] * weight[k] + bias[k];
            if (sums_up) {
              to[k] = y;
            } else if (row >= 0) {
              out[row * width + k] = T(y);
            }
          }
        }
        __syncwarp();
      }
      if (!sums_up) continue;
      __syncthreads();
      // Columns are independent. All threads follow the owners.
      const int used = size - step < rows ? size - step : rows;
      for (int64_t k = threadIdx.x; k < width; k += blockDim.x) {
        const W* from = memory.buffer(buffer_of(layers.count)) + k;
        W sum = sum_so_far[k];
        int64_t at = owner;
        bool first = is_first;
        for (int r = 0; r < used; ++r, from += stride) {
          if (owners[r] != at) {
            if (first) {
              open.sums[2 * chunk * width + k] = sum;
            } else {
              out[at * width + k] = T(sum);
            }
            at = owners[r];
            first = false;
            sum = 0;
          }
          sum += *from;
        }
        sum_so_far[k] = sum;
      }
      is_first = is_first && owners[used - 1] == owner;
      owner = owners[used - 1];
      __syncthreads();
    }
    if (!sums_up) continue;
    for (int64_t k = threadIdx.x; k < width; k += blockDim.x) {
      open.sums[(2 * chunk + (is_first ? 0 : 1)) * width + k] = sum_so_far[k];
      if (is_first) open.sums[(2 * chunk + 1) * width + k] = 0;
    }
  }
}

// The clusters that chunks have parts of, and zeros for those without rows.
template <class Index, class T>
struct StoreCluster {
  T* out;
  const Index* begin;  // of the rows of each cluster
  __device__ void none(int64_t at, int64_t owner) const {
    if (begin[owner] == begin[owner + 1]) out[at] = T(0);
  }
  __device__ Sum<T> start(int64_t, Sum<T> first) const { return first; }
  __device__ void finish(int64_t at, int64_t, Sum<T> sum, int64_t) const { out[at] = T(sum); }
};

// Blocks for so many rows in chunks: with fewer warps, and then with memory elsewhere, where there is no room
// for `warp_values` a warp and `block_values` beside. `spill` gets that memory, or null.
template <class W, class Scratch>
Launcher blocks_for(const Launcher& launch, int64_t chunks, int64_t most, int64_t warp_values,
                    int64_t block_values, const Scratch& scratch, W** spill) {
  const int64_t size = sizeof(W);
  const int64_t fitting = fitting_warps(launch, kResidualBytes, warp_values * size, block_values * size);
  Launcher blocks = launch;
  const int64_t warps = fitting > 0 ? fitting : std::min(launch.block_size, kMlpThreads) / kWarp;
  blocks.block_size = int(warps) * kWarp;
  blocks.max_blocks = std::min({launch.max_blocks, chunks, most, fitting > 0 ? most : kSpillBlocks});
  *spill = fitting > 0 ? nullptr : room<W>(scratch, blocks.max_blocks * (warps * warp_values + block_values));
  return blocks;
}

template <class Index, class T, class Scratch>
void sum_residuals(const Launcher& launch, const Residual<Sum<T>>& block, const Segments<>& segments,
                   const T* x, const PackedLayers<Sum<T>>& layers, T* out, const Scratch& scratch) {
  using W = Sum<T>;
  const int64_t width = segments.width, num_clusters = segments.num_clusters;
  const bool sums_up = num_clusters >= 0;
  const int chunk_items = 1 << launch.piece_bits;
  const int64_t chunks = (segments.rows + chunk_items - 1) / chunk_items;
  const Runs<Index> runs = sums_up ? runs_of_rows<Index>(launch, segments, scratch)
                                   : Runs<Index>{nullptr, nullptr, nullptr, segments.rows, 0};
  const int64_t parts = sums_up ? 2 * chunks : 0;
  const OpenSums<Index, W> open{room<W>(scratch, parts * width), room<Index>(scratch, parts),
                                room<Index>(scratch, parts)};
  W* spill = nullptr;
  const int64_t warp_values = forward_buffers(layers.count) * kRows<W> * layers.stride();
  const Launcher blocks =
      blocks_for(launch, chunks, kMaxBlocks, warp_values, layers.stride(), scratch, &spill);
  blocks(residual_rows<Index, T>, chunks * blocks.block_size, runs, chunks, chunk_items, x, layers,
         Activation<W>{block.dropout, block.seed}, spill, open, out);
  if (!sums_up) return;
  Index* begin = room<Index>(scratch, num_clusters + 1);
  launch(find_begins<Index>, num_clusters + 1, open.owner, parts, num_clusters, begin);
  fold(launch, Runs<Index>{open.owner, open.number, begin, parts, num_clusters}, width,
       RowTerm<W>{open.sums, width}, StoreCluster<Index, T>{out, runs.begin}, scratch);
}

// Nothing is kept for backward.
template <class T, class Products, class Scratch>
void residual_kernel(const Launcher& launch, const Residual<Sum<T>>& block, const Segments<>& segments,
                     const T* x, int64_t, const Products& products, const KeptRows<Sum<T>>&, T* out,
                     const Scratch& scratch) {
  const auto layers = pack_layers(launch, layers_of(block), block.width, products, false, scratch);
  with_index(std::max(segments.rows, segments.num_clusters), [&](auto index) {
    sum_residuals<decltype(index)>(launch, block, segments, x, layers, out, scratch);
  });
}

// ------------------------------------------------------------------------------------------------- backward

// Of x and of what comes out of every layer; with hidden layers, one for what is on its way to the one
// before.
GPN_HOST_DEVICE int64_t backward_buffers(int64_t layers) { return layers > 1 ? layers + 2 : 2; }

// From the gradient of the LayerNorm's result, `grad`, to that of what goes into it, written over x, which is
// what was normalised. grad may be null, where it is zero. sums: of each column, what a warp adds to the
// gradients of the LayerNorm's weight and bias.
template <class T>
__device__ void normalise_total_backward(const Sum<T>* weight, int64_t width, int stride, int lane,
                                         const T* grad, Sum<T> factor, Sum<T>* x, Sum<T>* sums) {
  using W = Sum<T>;
  W sum = 0, slope_sum = 0;
  for (int64_t k = lane; k < width; k += kWarp) {
    const W g = grad != nullptr ? W(grad[k]) : W(0);
    sums[k] += g * x[k];
    sums[stride + k] += g;
    sum += g * weight[k];
    slope_sum += g * weight[k] * x[k];
  }
  const W mean = warp_sum(sum) / W(width), slope = warp_sum(slope_sum) / W(width);
  for (int64_t k = lane; k < width; k += kWarp) {
    const W g = grad != nullptr ? W(grad[k]) : W(0);
    x[k] = factor * (g * weight[k] - mean - x[k] * slope);
  }
}

// grad: of the results; with clusters, of their sums. partial: where the gradients of the parameters go, so
// many layers of partial_values a block.
// Registers: 255.
template <class T>
__global__ void __launch_bounds__(kMlpThreads, kResident)
    residual_gradients(Segments<> segments, const T* grad, const T* x, PackedLayers<Sum<T>> layers,
                       Activation<Sum<T>> activation, Sum<T>* spill, Sum<T>* partial, T* grad_x) {
  using W = Sum<T>;
  __shared__ Four<W> shared[kResidualBytes / sizeof(Four<W>)];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int64_t width = layers.width;
  const int stride = int(layers.stride()), last = int(layers.count) - 1;
  const int rows = warps * kRows<W>, own = warp * kRows<W>;
  const int buffers = int(backward_buffers(layers.count));
  const int64_t block_values = (int64_t(buffers) * rows + 2 * warps) * stride;
  const BlockRows<W> memory{
      spill != nullptr ? spill + blockIdx.x * block_values : reinterpret_cast<W*>(shared), rows, stride};
  W* total = memory.buffer(last + 1);  // what goes into the LayerNorm, and then its gradient
  W* product = memory.buffer(last > 0 ? last + 2 : 0);
  W* sums = memory.buffer(buffers) + 2 * warp * stride;
  const W scale = activation.seed == nullptr ? W(1) : activation.dropout.scale;
  partial += blockIdx.x * layers.count * partial_values(stride);
  for (int64_t i = threadIdx.x; i < layers.count * partial_values(stride); i += blockDim.x) partial[i] = 0;

  for (int64_t step = int64_t(blockIdx.x) * rows; step < segments.rows; step += int64_t(gridDim.x) * rows) {
    const auto row_at = [&](int r) { return step + own + r < segments.rows ? step + own + r : -1; };
    GPN_NO_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      load_row(x, row_at(r), width, stride, lane, memory.buffer(0) + (own + r) * stride);
    }
    for (int k = lane; k < 2 * stride; k += kWarp) sums[k] = 0;
    __syncwarp();
    for (int layer = 0; layer <= last; ++layer) {
      W* to = memory.buffer(layer + 1) + own * stride;
      multiply_rows(memory.buffer(layer) + own * stride, layers.transposed(layer), stride, lane, to);
      __syncwarp();
      GPN_NO_UNROLL
      for (int r = 0; r < kRows<W>; ++r, to += stride) {
        const int64_t row = row_at(r);
        if (layer < last) {
          activate_linear(layers.bias(layer), activation, Scorer<W>::place(layer, row < 0 ? 0 : row, width),
                          width, lane, to);
          continue;
        }
        const W factor =
            normalise_total(layers.bias(layer), memory.buffer(0) + (own + r) * stride, width, lane, to);
        int64_t from = row;
        if (row >= 0 && segments.num_clusters >= 0) {
          from = segments.cluster[row];
          if (!assert_cluster_or_none(from, segments.num_clusters)) from = -1;
        }
        normalise_total_backward(layers.norm_weight(layer), width, stride, lane,
                                 from < 0 ? nullptr : grad + from * width, factor, to, sums);
      }
      __syncwarp();
    }
    for (int layer = last; layer >= 0; --layer) {
      W* z = memory.buffer(layer);            // what went into the layer
      const W* g = memory.buffer(layer + 1);  // the gradient of what came out
      __syncthreads();
      W* to = partial + layer * partial_values(stride);
      add_outer_products(g, z, rows, stride, to);
      to += int64_t(stride) * stride;
      for (int k = threadIdx.x; k < stride; k += blockDim.x) {
        W sum = 0;
        for (int r = 0; r < rows; ++r) sum += g[r * stride + k];
        to[k] += sum;
      }
      for (int k = threadIdx.x; layer == last && k < 2 * stride; k += blockDim.x) {
        W sum = 0;
        for (int other = 0; other < warps; ++other) sum += memory.buffer(buffers)[2 * other * stride + k];
        to[stride + k] += sum;
      }
      __syncthreads();
      multiply_rows(g + own * stride, layers.weight(layer), stride, lane, product + own * stride);
      __syncwarp();
      GPN_NO_UNROLL
      for (int r = own; r < own + kRows<W>; ++r) {
        const int64_t row = row_at(r - own);
        for (int k = lane; k < stride; k += kWarp) {
          const int at = r * stride + k;
          if (layer > 0) {
            z[at] = z[at] > 0 ? product[at] * scale : W(0);  // also of what dropout set to zero
          } else if (row >= 0 && k < width) {
            grad_x[row * width + k] = T(product[at] + total[at]);
          }
        }
      }
      __syncwarp();
    }
  }
}

template <class T, class Products, class Scratch>
void residual_backward_kernel(const Launcher& launch, const Residual<Sum<T>>& block,
                              const Segments<>& segments, const T* grad, const T* x, int64_t,
                              const Products& products, const KeptRows<Sum<T>>&, T* grad_x,
                              const ResidualGradients<Sum<T>>& grads, const Scratch& scratch) {
  using W = Sum<T>;
  const PackedLayers<W> layers = pack_layers(launch, layers_of(block), block.width, products, true, scratch);
  const int64_t width = layers.width, stride = layers.stride(), count = layers.count;
  const int64_t values = count * partial_values(stride);
  const int64_t piece = int64_t(1) << launch.piece_bits, pieces = (segments.rows + piece - 1) / piece;
  const int64_t most =
      std::clamp(kPartialBytes / (values * int64_t(sizeof(W))), kLeastPartials, kMostPartials);
  W* spill = nullptr;
  const int64_t warp_values = (backward_buffers(count) * kRows<W> + 2) * stride;
  const Launcher blocks = blocks_for(launch, pieces, most, warp_values, 0, scratch, &spill);
  W* partial = room<W>(scratch, blocks.max_blocks * values);
  blocks(residual_gradients<T>, blocks.max_blocks * blocks.block_size, segments, grad, x, layers,
         Activation<W>{block.dropout, block.seed}, spill, partial, grad_x);
  for (int64_t layer = 0; layer < count; ++layer) {
    const bool is_last = layer + 1 == count;
    const LayerGradients<W> out{products.weight_gradient(layer),
                                grads.bias[size_t(layer)],
                                is_last ? grads.norm_weight : nullptr,
                                is_last ? grads.norm_bias : nullptr,
                                nullptr,
                                nullptr};
    launch(add_partials<W>, (width + 4) * width + 1, partial + layer * partial_values(stride),
           blocks.max_blocks, values, width, stride, out);
  }
}

}  // namespace gpn::cuda
