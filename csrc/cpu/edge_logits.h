// What an edge scorer gives before its sigmoid, on the CPU, a tile of pairs at a time. Matrix products are
// the caller's, `count` rows each, W being the weight of hidden layer `layer`:
//   products.rows(layer, z, count, out)            out = z W^T
//   products.rows_backward(layer, grad, count, out)  out = grad W
//   products.weight_backward(layer, grad, z, count)  adds grad^T z to the gradient of W
// All else goes row by row, or adds up rows in chunks of a fixed length, whatever the number of threads.
#pragma once

#include <cmath>

#include "../core/scorer.h"
#include "dropout.h"
#include "pair_product.h"

namespace gpn::cpu {

// Rows whose sums over columns are taken together.
constexpr int64_t kRowChunk = 64;

// z = ReLU(LayerNorm(a + bias)), the ReLU by choice. Backward needs what is normalised and by what factor:
// both may be null. In place is fine: z, normalised and a may be the same, but for the first two.
template <class W>
[[gnu::always_inline]] inline void normalise_rows_body(const HiddenLayer<W>& layer, int64_t rows,
                                                       int64_t width, bool relu, const W* a, W* normalised,
                                                       W* factor, W* z) {
  const W* __restrict bias = layer.bias;
  const W* __restrict norm_weight = layer.norm_weight;
  const W* __restrict norm_bias = layer.norm_bias;
  const W least = relu ? W(0) : -std::numeric_limits<W>::infinity();
  for (int64_t row = 0; row < rows; ++row, a += width, z += width) {
    const W mean = sum_lanes<W>(width, [=](int64_t k) { return a[k] + bias[k]; }) / W(width);
    const W variance = sum_lanes<W>(width,
                                    [=](int64_t k) {
                                      const W x = a[k] + bias[k] - mean;
                                      return x * x;
                                    }) /
                       W(width);
    const W rstd = W(1) / std::sqrt(variance + W(kLayerNormEps));
    if (normalised != nullptr) {
      W* x = normalised + row * width;
      for (int64_t k = 0; k < width; ++k) {
        x[k] = (a[k] + bias[k] - mean) * rstd;
        const W y = x[k] * norm_weight[k] + norm_bias[k];
        z[k] = least > y ? least : y;  // NaN stays
      }
      factor[row] = rstd;
    } else {
      for (int64_t k = 0; k < width; ++k) {
        const W y = (a[k] + bias[k] - mean) * rstd * norm_weight[k] + norm_bias[k];
        z[k] = least > y ? least : y;
      }
    }
  }
}

GPN_VECTOR_CLONES
static inline void normalise_rows(const HiddenLayer<float>& layer, int64_t rows, int64_t width, bool relu,
                                  const float* a, float* normalised, float* factor, float* z) {
  normalise_rows_body(layer, rows, width, relu, a, normalised, factor, z);
}
GPN_VECTOR_CLONES
static inline void normalise_rows(const HiddenLayer<double>& layer, int64_t rows, int64_t width, bool relu,
                                  const double* a, double* normalised, double* factor, double* z) {
  normalise_rows_body(layer, rows, width, relu, a, normalised, factor, z);
}

// Sums over the columns of a chunk of rows, for the gradients of a hidden layer's parameters and, where it is
// the last one, of the weight after it. Each: [width].
template <class W>
struct ColumnSums {
  W* bias;
  W* norm_weight;
  W* norm_bias;
  W* last_weight;
  static constexpr int64_t kCount = 4;
  static ColumnSums at(W* memory, int64_t width) {
    return {memory, memory + width, memory + 2 * width, memory + 3 * width};
  }
};

// The gradient of what goes into the LayerNorm, written over z, which comes out of the hidden layer. grad_z
// is z's gradient; null in the last hidden layer, where it is grad[row] times the weight after it.
template <class W>
[[gnu::always_inline]] inline void normalise_rows_backward_body(const HiddenLayer<W>& layer, int64_t rows,
                                                                int64_t width, W scale, const W* grad,
                                                                const W* weight, const W* grad_z,
                                                                const W* normalised, const W* factor,
                                                                W* all_z, const ColumnSums<W>& sums) {
  // Copies that no store can change: the compiler makes vector code of the loops.
  W* __restrict bias_sum = sums.bias;
  W* __restrict norm_weight_sum = sums.norm_weight;
  W* __restrict norm_bias_sum = sums.norm_bias;
  W* __restrict weight_sum = sums.last_weight;
  const W* __restrict norm_weight = layer.norm_weight;
  const W* __restrict last_weight = weight;
  for (int64_t row = 0; row < rows; ++row) {
    const W g = grad[row], rstd = factor[row];
    W* __restrict z = all_z + row * width;
    const W* __restrict x = normalised + row * width;
    // Multiplied by 0 or by the scale: a choice between results would become a branch.
    if (grad_z != nullptr) {
      const W* __restrict from = grad_z + row * width;
      for (int64_t k = 0; k < width; ++k) z[k] = from[k] * (z[k] > 0 ? scale : W(0));
    } else {
      const W scaled = g * scale;
      for (int64_t k = 0; k < width; ++k) {
        weight_sum[k] += g * z[k];
        z[k] = last_weight[k] * (z[k] > 0 ? scaled : W(0));
      }
    }
    for (int64_t k = 0; k < width; ++k) {
      norm_weight_sum[k] += z[k] * x[k];
      norm_bias_sum[k] += z[k];
      z[k] *= norm_weight[k];
    }
    const W mean = sum_lanes<W>(width, [=](int64_t k) { return z[k]; }) / W(width);
    const W slope = sum_lanes<W>(width, [=](int64_t k) { return z[k] * x[k]; }) / W(width);
    for (int64_t k = 0; k < width; ++k) {
      z[k] = rstd * (z[k] - mean - x[k] * slope);
      bias_sum[k] += z[k];
    }
  }
}

GPN_VECTOR_CLONES
static inline void normalise_rows_backward(const HiddenLayer<float>& layer, int64_t rows, int64_t width,
                                           float scale, const float* grad, const float* weight,
                                           const float* grad_z, const float* normalised, const float* factor,
                                           float* z, const ColumnSums<float>& sums) {
  normalise_rows_backward_body(layer, rows, width, scale, grad, weight, grad_z, normalised, factor, z, sums);
}
GPN_VECTOR_CLONES
static inline void normalise_rows_backward(const HiddenLayer<double>& layer, int64_t rows, int64_t width,
                                           double scale, const double* grad, const double* weight,
                                           const double* grad_z, const double* normalised,
                                           const double* factor, double* z, const ColumnSums<double>& sums) {
  normalise_rows_backward_body(layer, rows, width, scale, grad, weight, grad_z, normalised, factor, z, sums);
}

// All on the calling thread.
struct Alone {
  static int64_t tasks(int64_t) { return 1; }
  static int64_t shares(int64_t) { return 1; }
  template <class F>
  void operator()(int64_t, const F& f) const {
    f(0);
  }
};

// What a hidden layer makes of a, the product of its rows with its weight. `first` is the number of the
// tile's first row among all.
template <class Parallel, class W>
void hidden_rows(const Parallel& parallel, const Scorer<W>& scorer, int64_t number, int64_t first,
                 int64_t rows, const W* a, W* normalised, W* factor, W* z) {
  const int64_t width = scorer.width;
  const Pieces pieces{rows, std::min(parallel.shares(rows * width), rows)};
  parallel(pieces.tasks, [&](int64_t task) {
    for (int64_t row = pieces.begin(task); row < pieces.end(task); row += kRowChunk) {
      const int64_t count = std::min(kRowChunk, pieces.end(task) - row), at = row * width;
      normalise_rows(scorer.hidden[size_t(number)], count, width, scorer.seed == nullptr, a + at,
                     normalised ? normalised + at : nullptr, factor ? factor + row : nullptr, z + at);
      if (scorer.seed != nullptr) {
        dropout_kernel(Alone(), scorer.dropout, scorer.seed, Scorer<W>::place(number, first + row, width),
                       count * width, z + at, z + at);
      }
    }
  });
}

inline Pairs part_of(const Pairs& pairs, int64_t begin, int64_t count) {
  return {pairs.first + begin, pairs.second + begin, count, pairs.num_nodes};
}

template <class Parallel, class T, class Products, class Scratch>
void edge_logits_kernel(const Parallel& parallel, const Scorer<Sum<T>>& scorer, const T* h,
                        const Pairs& pairs, int64_t tile_rows, Products& products, Sum<T>* out,
                        const Scratch& scratch) {
  using W = Sum<T>;
  check_pairs(parallel, pairs);
  const int64_t width = scorer.width, most = std::min(tile_rows, pairs.count);
  W* rows = room<W>(scratch, most * width);
  W* hidden = room<W>(scratch, most * width);
  for (int64_t begin = 0; begin < pairs.count; begin += tile_rows) {
    const Pairs tile = part_of(pairs, begin, std::min(tile_rows, pairs.count - begin));
    pair_product(parallel, h, tile, width, rows);
    for (int64_t layer = 0; layer < scorer.layers(); ++layer) {
      products.rows(layer, rows, tile.count, hidden);
      hidden_rows<Parallel, W>(parallel, scorer, layer, begin, tile.count, hidden, nullptr, nullptr, hidden);
      std::swap(rows, hidden);
    }
    const Pieces pieces{tile.count, std::min(parallel.shares(tile.count * width), tile.count)};
    parallel(pieces.tasks, [&](int64_t task) {
      for (int64_t p = pieces.begin(task); p < pieces.end(task); ++p) {
        const W* z = rows + p * width;
        out[begin + p] =
            sum_lanes<W>(width, [=, w = scorer.weight](int64_t k) { return z[k] * w[k]; }) + *scorer.bias;
      }
    });
  }
}

template <class Parallel, class T, class Products, class Scratch>
void edge_logits_backward_kernel(const Parallel& parallel, const Scorer<Sum<T>>& scorer, const Sum<T>* grad,
                                 const T* h, const Pairs& pairs, int64_t tile_rows, Products& products,
                                 T* grad_h, const std::vector<ColumnGradients<Sum<T>>>& grads,
                                 Sum<T>* grad_bias, const Scratch& scratch) {
  using W = Sum<T>;
  check_pairs(parallel, pairs);
  const int64_t width = scorer.width, layers = scorer.layers(), most = std::min(tile_rows, pairs.count);
  const int64_t chunks = (most + kRowChunk - 1) / kRowChunk, sums_size = ColumnSums<W>::kCount * width;
  W* grad_sums = room_for_sums(grad_h, pairs.num_nodes * width, scratch);
  clear(parallel, grad_sums, pairs.num_nodes * width);
  // Of every hidden layer what goes in, what its LayerNorm makes of it, and by which factors.
  std::vector<W*> rows, normalised, factor;
  for (int64_t layer = 0; layer < layers; ++layer) {
    rows.push_back(room<W>(scratch, most * width));
    normalised.push_back(room<W>(scratch, most * width));
    factor.push_back(room<W>(scratch, most));
  }
  rows.push_back(room<W>(scratch, most * width));
  W* partial = room<W>(scratch, chunks * sums_size);
  std::vector<double> total(size_t(layers * sums_size), 0);

  for (int64_t begin = 0; begin < pairs.count; begin += tile_rows) {
    const Pairs tile = part_of(pairs, begin, std::min(tile_rows, pairs.count - begin));
    pair_product(parallel, h, tile, width, rows[0]);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const size_t l = size_t(layer);
      products.rows(layer, rows[l], tile.count, normalised[l]);
      hidden_rows<Parallel, W>(parallel, scorer, layer, begin, tile.count, normalised[l], normalised[l],
                               factor[l], rows[l + 1]);
    }
    const W scale = scorer.seed == nullptr ? W(1) : scorer.dropout.scale;
    const W* grad_z = nullptr;
    for (int64_t layer = layers - 1; layer >= 0; --layer) {
      const size_t l = size_t(layer);
      W* z = rows[l + 1];  // its gradient takes its place
      const int64_t used = (tile.count + kRowChunk - 1) / kRowChunk;
      const Pieces shared{used, std::min(parallel.shares(tile.count * width), used)};
      parallel(shared.tasks, [&](int64_t task) {
        for (int64_t chunk = shared.begin(task); chunk < shared.end(task); ++chunk) {
          const int64_t row = chunk * kRowChunk, at = row * width;
          W* sums = partial + chunk * sums_size;
          std::fill(sums, sums + sums_size, W(0));
          normalise_rows_backward(scorer.hidden[l], std::min(kRowChunk, tile.count - row), width, scale,
                                  grad + begin + row, scorer.weight, grad_z ? grad_z + at : nullptr,
                                  normalised[l] + at, factor[l] + row, z + at,
                                  ColumnSums<W>::at(sums, width));
        }
      });
      double* sum = total.data() + layer * sums_size;
      for (int64_t chunk = 0; chunk < used; ++chunk) {
        for (int64_t k = 0; k < sums_size; ++k) sum[k] += double(partial[chunk * sums_size + k]);
      }
      products.weight_backward(layer, z, rows[l], tile.count);
      products.rows_backward(layer, z, tile.count, normalised[l]);
      grad_z = normalised[l];
    }
    add_both_ends(
        parallel, h, tile, pairs.num_nodes, width,
        [=](int64_t p, int64_t k) { return grad_z[p * width + k]; }, grad_sums);
  }

  finish_sums(parallel, grad_sums, nullptr, pairs.num_nodes, width, grad_h);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const double* sum = total.data() + layer * sums_size;
    for (int64_t i = 0; i < ColumnSums<W>::kCount; ++i) {
      W* to = grads[size_t(layer)][size_t(i)];
      for (int64_t k = 0; to != nullptr && k < width; ++k) to[k] = W(sum[i * width + k]);
    }
  }
  *grad_bias = W(sum_lanes<double>(pairs.count, [=](int64_t p) { return double(grad[p]); }));
}

}  // namespace gpn::cpu
