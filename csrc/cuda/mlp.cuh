// What the fused kernels of MLPs have in common, on CUDA: a warp takes kRows rows through square layers. Rows
// are in shared memory, filled up with zeros to a multiple of eight values; weights are read through the
// cache. Products are those of float32 (or float64) and run without tensor cores.
#pragma once

#include <vector>

#include "../core/scorer.h"
#include "../core/sums.h"
#include "launch.cuh"

namespace gpn::cuda {

template <class W>
constexpr int kRows = sizeof(W) == 8 ? 4 : 8;  // of a warp
constexpr int kMlpThreads = 128;               // at most, of a block
constexpr int kResident = 2;                   // blocks that the registers of a multiprocessor are for
constexpr int64_t kSpillBlocks = 128;
constexpr int64_t kPartialBytes = 64 << 20;
constexpr int64_t kLeastPartials = 32, kMostPartials = 512;  // of blocks; a thread adds them in sequence

// Read and written at once.
template <class W>
struct alignas(16) Four {
  W value[4];
};
template <class W>
__device__ Four<W> load(const W* from) {
  return *reinterpret_cast<const Four<W>*>(from);
}
template <class W>
__device__ void store(const Four<W>& four, W* to) {
  *reinterpret_cast<Four<W>*>(to) = four;
}

// -------------------------------------------------------------------------------------------- the parameters

// The hidden layers in one piece, their rows filled up with zeros to a multiple of eight.
template <class W>
struct PackedLayers {
  const W* values;
  int64_t count, width;
  bool both;  // with the weights as they are, which backward needs, and not only transposed

  GPN_HOST_DEVICE int64_t stride() const { return (width > 0 ? width + 7 : 8) / 8 * 8; }
  GPN_HOST_DEVICE int64_t matrices() const { return both ? 2 : 1; }
  GPN_HOST_DEVICE int64_t size() const { return (matrices() * stride() + 3) * stride(); }  // of a layer
  GPN_HOST_DEVICE const W* transposed(int64_t layer) const { return values + layer * size(); }
  GPN_HOST_DEVICE const W* weight(int64_t layer) const { return transposed(layer) + stride() * stride(); }
  GPN_HOST_DEVICE const W* bias(int64_t layer) const {
    return transposed(layer) + matrices() * stride() * stride();
  }
  GPN_HOST_DEVICE const W* norm_weight(int64_t layer) const { return bias(layer) + stride(); }
  GPN_HOST_DEVICE const W* norm_bias(int64_t layer) const { return norm_weight(layer) + stride(); }
};

// Registers: 40.
template <class W>
__global__ void pack_layer(HiddenLayer<W> layer, const W* weight, PackedLayers<W> sizes, W* packed) {
  const int64_t width = sizes.width, stride = sizes.stride(), matrices = sizes.matrices() * stride;
  for (int64_t at = thread_index(); at < sizes.size(); at += thread_count()) {
    const int64_t row = at / stride, k = at % stride;
    W value = 0;
    if (k >= width) {
    } else if (row < stride) {
      if (row < width) value = weight[k * width + row];
    } else if (row < matrices) {
      if (row - stride < width) value = weight[(row - stride) * width + k];
    } else {
      const W* vector = row == matrices       ? layer.bias
                        : row == matrices + 1 ? layer.norm_weight
                                              : layer.norm_bias;
      value = vector == nullptr ? W(0) : vector[k];
    }
    packed[at] = value;
  }
}

// `products.weight(layer)` is the weight of a hidden layer, [width, width].
template <class W, class Products, class Scratch>
PackedLayers<W> pack_layers(const Launcher& launch, const std::vector<HiddenLayer<W>>& hidden, int64_t width,
                            const Products& products, bool both, const Scratch& scratch) {
  PackedLayers<W> layers{nullptr, int64_t(hidden.size()), width, both};
  W* packed = room<W>(scratch, layers.count * layers.size());
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    launch(pack_layer<W>, layers.size(), hidden[size_t(layer)], products.weight(layer), layers,
           packed + layer * layers.size());
  }
  layers.values = packed;
  return layers;
}

// What comes after a hidden layer's LayerNorm.
template <class W>
struct Activation {
  Dropout<W> dropout;
  const int64_t* seed;  // null where nothing is dropped

  __device__ W factor(int64_t place) const {
    if (seed == nullptr) return W(1);
    const uint64_t word = random_word(uint64_t(*seed), uint64_t(place) / kLanes);
    return dropout.factor(lane_of(word, int64_t(uint64_t(place) % kLanes)));
  }
};

// ------------------------------------------------------------------------------------------------- of a warp

// The same in all lanes.
template <class W>
__device__ W warp_sum(W value) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}

// out = kRows<W> rows times a matrix, [stride, stride].
template <class W>
__device__ void multiply_rows(const W* rows, const W* matrix, int stride, int lane, W* out) {
  for (int c = 4 * lane; c < stride; c += 4 * kWarp) {
    Four<W> sum[kRows<W>] = {};
    const W* column = matrix + c;
    // More at a time would not fit the registers.
    GPN_NO_UNROLL
    for (int k = 0; k < stride; k += 4) {
      Four<W> factor[4];
      GPN_UNROLL
      for (int q = 0; q < 4; ++q, column += stride) factor[q] = load(column);
      GPN_UNROLL
      for (int r = 0; r < kRows<W>; ++r) {
        const Four<W> z = load(rows + r * stride + k);
        GPN_UNROLL
        for (int q = 0; q < 4; ++q) {
          GPN_UNROLL
          for (int i = 0; i < 4; ++i) sum[r].value[i] += z.value[q] * factor[q].value[i];
        }
      }
    }
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) store(sum[r], out + r * stride + c);
  }
}

// x = (x + bias - mean) * factor, where the latter two make the mean 0 and the variance 1. Gives the factor.
template <class W>
__device__ W normalise_row(const W* bias, int64_t width, int lane, W* x) {
  W sum = 0;
  for (int64_t k = lane; k < width; k += kWarp) {
    x[k] += bias[k];
    sum += x[k];
  }
  const W mean = warp_sum(sum) / W(width);
  W squares = 0;
  for (int64_t k = lane; k < width; k += kWarp) squares += (x[k] - mean) * (x[k] - mean);
  const W factor = W(1) / sqrt(warp_sum(squares) / W(width) + W(kLayerNormEps));
  for (int64_t k = lane; k < width; k += kWarp) x[k] = (x[k] - mean) * factor;
  return factor;
}

// How many warps of a block have room for what they keep, a power of two; 0 if not even one has.
inline int64_t fitting_warps(const Launcher& launch, int64_t bytes, int64_t warp_bytes, int64_t block_bytes) {
  const int64_t most = std::min(launch.block_size, kMlpThreads) / kWarp;
  int64_t warps = 0;
  for (int64_t wanted = 1; wanted <= most && wanted * warp_bytes + block_bytes <= bytes; wanted *= 2) {
    warps = wanted;
  }
  return warps;
}

// --------------------------------------------------------------------------------- the parameters' gradients

// A block's part of the gradients of a layer: weight, [stride, stride], then bias, norm weight and norm bias.
GPN_HOST_DEVICE int64_t partial_values(int64_t stride) { return (stride + 3) * stride; }

// A tile of a sum of outer products, by a thread: four columns from left and from right on, and, where a
// number is 2, four more half a row further.
template <class W, int kSides, int kHalves>
struct OuterTile {
  static GPN_HOST_DEVICE int across(int stride) { return stride / (4 * kHalves); }
  static GPN_HOST_DEVICE int down(int stride) { return stride / (4 * kSides); }

  Four<W> sum[kSides][4][kHalves];

  __device__ OuterTile(const W* left_row, const W* right_row, int rows, int stride) : sum{} {
    GPN_NO_UNROLL
    for (int row = 0; row < rows; ++row, left_row += stride, right_row += stride) {
      Four<W> right[kHalves];
      GPN_UNROLL
      for (int half = 0; half < kHalves; ++half) right[half] = load(right_row + half * (stride / 2));
      GPN_UNROLL
      for (int side = 0; side < kSides; ++side) {
        const Four<W> left = load(left_row + side * (stride / 2));
        GPN_UNROLL
        for (int q = 0; q < 4; ++q) {
          GPN_UNROLL
          for (int half = 0; half < kHalves; ++half) {
            GPN_UNROLL
            for (int i = 0; i < 4; ++i) sum[side][q][half].value[i] += left.value[q] * right[half].value[i];
          }
        }
      }
    }
  }

  // use(four, at, half): four values of the tile and their place in a matrix, seen from its first.
  template <class Use>
  __device__ void each(int stride, const Use& use) const {
    GPN_UNROLL
    for (int side = 0; side < kSides; ++side) {
      GPN_UNROLL
      for (int q = 0; q < 4; ++q) {
        GPN_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          use(sum[side][q][half], (side * (stride / 2) + q) * stride + half * (stride / 2), half);
        }
      }
    }
  }
};

// total[j, k] += sum over rows of g[row, j] * z[row, k], by all threads of a block.
template <class W>
__device__ void add_outer_products(const W* g, const W* z, int rows, int stride, W* total) {
  using Tile = OuterTile<W, sizeof(W) == 8 ? 1 : 2, 2>;  // for two of float64 there are no registers
  const int across = Tile::across(stride);
  for (int at = threadIdx.x; at < across * Tile::down(stride); at += blockDim.x) {
    const int j = 4 * (at / across), k = 4 * (at % across);
    W* to = total + int64_t(j) * stride + k;
    Tile(g + j, z + k, rows, stride).each(stride, [&](const Four<W>& sum, int place, int) {
      Four<W> value = load(to + place);
      GPN_UNROLL
      for (int i = 0; i < 4; ++i) value.value[i] += sum.value[i];
      store(value, to + place);
    });
  }
}

// Where the gradients of a hidden layer go, [width, width] and [width]; of the last one also those of the
// weight and the bias after it, [width] and one, else null.
template <class W>
struct LayerGradients {
  W* weight;
  W* bias;
  W* norm_weight;
  W* norm_bias;
  W* last_weight;
  W* last_bias;
  // Of number k of a row: first those of the weight, then the others.
  __device__ W* at(int64_t row, int64_t k, int64_t width) const {
    if (row < width) return weight + row * width + k;
    if (row == width + 4) return last_bias;
    W* vector = row == width       ? bias
                : row == width + 1 ? norm_weight
                : row == width + 2 ? norm_bias
                                   : last_weight;
    return vector == nullptr ? nullptr : vector + k;
  }
};

// Adds up what blocks have added up.
// Registers: 64.
template <class W>
__global__ void add_partials(const W* partial, int64_t blocks, int64_t values, int64_t width, int64_t stride,
                             LayerGradients<W> out) {
  const int64_t last = (width + 4) * width;
  for (int64_t at = thread_index(); at <= last; at += thread_count()) {
    const int64_t row = at == last ? width + 4 : at / width, k = at == last ? 0 : at % width;
    W* to = out.at(row, k, width);
    if (to == nullptr) continue;
    const int64_t from = (row < width ? row : stride + row - width) * stride + k;
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += double(partial[block * values + from]);
    *to = W(sum);
  }
}

}  // namespace gpn::cuda
