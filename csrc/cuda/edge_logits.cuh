// What an edge scorer gives before its sigmoid, on CUDA: the features of two nodes in, a score out. A warp
// takes kRows pairs through all layers; their rows stay in shared memory. Products are those of float32 (or
// float64) and run without tensor cores.
#pragma once

#include "../core/scorer.h"
#include "pair_dot.cuh"

namespace gpn::cuda {

constexpr int kRows = 4;             // pairs of a warp
constexpr int kColumns = 4;          // of a lane, for each of its rows, at a time
constexpr int kRowBytes = 32 << 10;  // shared memory of a block
constexpr int64_t kSpillBlocks = 128;

// How many values a warp keeps: what goes into a layer and what comes out.
GPN_HOST_DEVICE int64_t kept_values(int64_t width) { return 2 * kRows * width; }
// How many values a hidden layer has in memory: its weight, bias, norm weight and norm bias.
GPN_HOST_DEVICE int64_t packed_values(int64_t width) { return (width + 3) * width; }

// A hidden layer in one piece, its weight transposed: lanes read neighbours.
// Registers: 40.
template <class W>
__global__ void pack_layer(HiddenLayer<W> layer, const W* weight, int64_t width, W* packed) {
  for (int64_t at = thread_index(); at < packed_values(width); at += thread_count()) {
    const int64_t row = at / width, k = at % width;
    packed[at] = row < width        ? weight[k * width + row]
                 : row == width     ? layer.bias[k]
                 : row == width + 1 ? layer.norm_weight[k]
                                    : layer.norm_bias[k];
  }
}

// The same in all lanes.
template <class W>
__device__ W warp_sum(W value) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}

// out = rows times the weight, plus the bias.
template <class W>
__device__ void multiply_rows(const W* rows, const W* packed, int64_t width, int lane, W* out) {
  for (int64_t base = lane; base < width; base += kColumns * kWarp) {
    W sum[kRows][kColumns] = {};
    for (int64_t k = 0; k < width; ++k) {
      W weight[kColumns];
#pragma unroll
      for (int q = 0; q < kColumns; ++q) {
        const int64_t c = base + q * kWarp;
        weight[q] = c < width ? packed[k * width + c] : W(0);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const W z = rows[r * width + k];
#pragma unroll
        for (int q = 0; q < kColumns; ++q) sum[r][q] += z * weight[q];
      }
    }
#pragma unroll
    for (int q = 0; q < kColumns; ++q) {
      const int64_t c = base + q * kWarp;
      if (c >= width) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) out[r * width + c] = sum[r][q] + packed[width * width + c];
    }
  }
}

// z = dropout(ReLU(LayerNorm(z))) for one row, whose first value has the place `first`.
template <class W>
__device__ void normalise_row(const W* norm_weight, const W* norm_bias, int64_t width, int lane,
                              const Dropout<W>& dropout, const int64_t* seed, int64_t first, W* z) {
  W sum = 0;
  for (int64_t k = lane; k < width; k += kWarp) sum += z[k];
  const W mean = warp_sum(sum) / W(width);
  W squares = 0;
  for (int64_t k = lane; k < width; k += kWarp) squares += (z[k] - mean) * (z[k] - mean);
  const W factor = W(1) / sqrt(warp_sum(squares) / W(width) + W(kLayerNormEps));
  for (int64_t k = lane; k < width; k += kWarp) {
    W y = Dropout<W>::positive((z[k] - mean) * factor * norm_weight[k] + norm_bias[k]);
    if (seed != nullptr) {
      const uint64_t place = uint64_t(first + k);
      const uint64_t word = random_word(uint64_t(*seed), place / kLanes);
      y *= dropout.factor(lane_of(word, int64_t(place % kLanes)));
    }
    z[k] = y;
  }
}

// spill: memory for the rows where a block's shared memory is too small, else null.
// Registers: 128.
template <class T>
__global__ void __launch_bounds__(kMostThreads / 4)
    score_pairs(Pairs pairs, const T* h, const Sum<T>* packed, int64_t layers, const Sum<T>* weight,
                const Sum<T>* bias, int64_t width, Dropout<Sum<T>> dropout, const int64_t* seed,
                Sum<T>* spill, Sum<T>* out) {
  using W = Sum<T>;
  __shared__ W shared[kRowBytes / sizeof(W)];
  const int lane = threadIdx.x % kWarp;
  W* rows = spill != nullptr ? spill + thread_index() / kWarp * kept_values(width)
                             : shared + threadIdx.x / kWarp * kept_values(width);
  W* hidden = rows + kRows * width;
  for (int64_t begin = thread_index() / kWarp * kRows; begin < pairs.count;
       begin += thread_count() / kWarp * kRows) {
    for (int r = 0; r < kRows; ++r) {
      const int64_t p = begin + r;
      const bool usable = p < pairs.count && pair_in_range(pairs, p);
      const T* a = h + (usable ? pairs.first[p] : 0) * width;
      const T* b = h + (usable ? pairs.second[p] : 0) * width;
      for (int64_t k = lane; k < width; k += kWarp) rows[r * width + k] = usable ? W(a[k]) * W(b[k]) : W(0);
    }
    __syncwarp();
    for (int64_t layer = 0; layer < layers; ++layer) {
      const W* parameters = packed + layer * packed_values(width);
      const W* norm = parameters + (width + 1) * width;
      multiply_rows(rows, parameters, width, lane, hidden);
      __syncwarp();
      for (int r = 0; r < kRows; ++r) {
        normalise_row(norm, norm + width, width, lane, dropout, seed,
                      Scorer<W>::place(layer, begin + r, width), hidden + r * width);
      }
      __syncwarp();
      W* used = rows;
      rows = hidden;
      hidden = used;
    }
    for (int r = 0; r < kRows; ++r) {
      W sum = 0;
      for (int64_t k = lane; k < width; k += kWarp) sum += rows[r * width + k] * weight[k];
      sum = warp_sum(sum);
      if (lane == 0 && begin + r < pairs.count) out[begin + r] = sum + *bias;
    }
    __syncwarp();
  }
}

// `products.weight(layer)` is the weight of a hidden layer, [width, width].
template <class T, class Products, class Scratch>
void edge_logits_kernel(const Launcher& launch, const Scorer<Sum<T>>& scorer, const T* h, const Pairs& pairs,
                        int64_t, const Products& products, Sum<T>* out, const Scratch& scratch) {
  using W = Sum<T>;
  const int64_t width = scorer.width;
  W* packed = room<W>(scratch, scorer.layers() * packed_values(width));
  for (int64_t layer = 0; layer < scorer.layers(); ++layer) {
    launch(pack_layer<W>, packed_values(width), scorer.hidden[size_t(layer)], products.weight(layer), width,
           packed + layer * packed_values(width));
  }
  // As many warps a block as its shared memory has room for; if not even one, a few blocks with memory.
  Launcher warps = launch;
  const int64_t fitting = int64_t(kRowBytes / sizeof(W)) / std::max<int64_t>(kept_values(width), 1);
  const int64_t most = std::min(launch.block_size, kMostThreads / 4) / kWarp;
  warps.block_size = int(std::clamp<int64_t>(fitting, 1, most)) * kWarp;
  W* spill = nullptr;
  if (fitting == 0) {
    warps.max_blocks = std::min(launch.max_blocks, kSpillBlocks);
    spill = room<W>(scratch, warps.max_blocks * kept_values(width));
  }
  const int64_t lanes = (pairs.count + kRows - 1) / kRows * kWarp;
  warps(score_pairs<T>, lanes, pairs, h, packed, scorer.layers(), scorer.weight, scorer.bias, width,
        scorer.dropout, scorer.seed, spill, out);
}

}  // namespace gpn::cuda
