// LayerNorm(x + MLP(x)) on the CPU, a tile of rows at a time, and its sums over clusters. Matrix products are
// the caller's, as in edge_logits.h. All else goes row by row, or adds up rows in chunks of a fixed length,
// whatever the number of threads.
#pragma once

#include "../core/residual.h"
#include "edge_logits.h"

namespace gpn::cpu {

// total += bias + x, its statistics, and the LayerNorm of it. out may be total, or null.
template <class W>
[[gnu::always_inline]] inline void normalise_totals_body(const W* bias, const W* norm_weight,
                                                         const W* norm_bias, int64_t rows, int64_t width,
                                                         const W* x, W* total, W* mean, W* factor, W* out) {
  for (int64_t row = 0; row < rows; ++row, x += width, total += width) {
    const W* __restrict b = bias;
    const W* __restrict from = x;
    W* __restrict to = total;
    for (int64_t k = 0; k < width; ++k) to[k] += b[k] + from[k];
    const W* t = total;
    const W middle = sum_lanes<W>(width, [=](int64_t k) { return t[k]; }) / W(width);
    const W variance =
        sum_lanes<W>(width, [=](int64_t k) { return (t[k] - middle) * (t[k] - middle); }) / W(width);
    const W rstd = W(1) / std::sqrt(variance + W(kLayerNormEps));
    mean[row] = middle;
    factor[row] = rstd;
    if (out == nullptr) continue;
    W* z = out + row * width;
    for (int64_t k = 0; k < width; ++k) z[k] = (t[k] - middle) * rstd * norm_weight[k] + norm_bias[k];
  }
}

GPN_VECTOR_CLONES
static inline void normalise_totals(const float* bias, const float* norm_weight, const float* norm_bias,
                                    int64_t rows, int64_t width, const float* x, float* total, float* mean,
                                    float* factor, float* out) {
  normalise_totals_body(bias, norm_weight, norm_bias, rows, width, x, total, mean, factor, out);
}
GPN_VECTOR_CLONES
static inline void normalise_totals(const double* bias, const double* norm_weight, const double* norm_bias,
                                    int64_t rows, int64_t width, const double* x, double* total, double* mean,
                                    double* factor, double* out) {
  normalise_totals_body(bias, norm_weight, norm_bias, rows, width, x, total, mean, factor, out);
}

// Sums over the columns of a chunk of rows. Each: [width].
template <class W>
struct ResidualSums {
  W* bias;
  W* norm_weight;
  W* norm_bias;
  static constexpr int64_t kCount = 3;
  static ResidualSums at(W* memory, int64_t width) { return {memory, memory + width, memory + 2 * width}; }
};

// From the gradient of the LayerNorm's result to that of what goes in, in place.
template <class W>
[[gnu::always_inline]] inline void normalise_totals_backward_body(const W* norm_weight, int64_t rows,
                                                                  int64_t width, const W* totals,
                                                                  const W* mean, const W* factor, W* grads,
                                                                  const ResidualSums<W>& sums) {
  // Copies that no store can change: the compiler makes vector code of the loops.
  W* __restrict bias_sum = sums.bias;
  W* __restrict weight_sum = sums.norm_weight;
  W* __restrict norm_bias_sum = sums.norm_bias;
  const W* __restrict weight = norm_weight;
  for (int64_t row = 0; row < rows; ++row) {
    const W middle = mean[row], rstd = factor[row];
    const W* __restrict t = totals + row * width;
    W* __restrict g = grads + row * width;
    for (int64_t k = 0; k < width; ++k) {
      weight_sum[k] += g[k] * ((t[k] - middle) * rstd);
      norm_bias_sum[k] += g[k];
      g[k] *= weight[k];
    }
    const W level = sum_lanes<W>(width, [=](int64_t k) { return g[k]; }) / W(width);
    const W slope =
        sum_lanes<W>(width, [=](int64_t k) { return g[k] * ((t[k] - middle) * rstd); }) / W(width);
    for (int64_t k = 0; k < width; ++k) {
      g[k] = rstd * (g[k] - level - (t[k] - middle) * rstd * slope);
      bias_sum[k] += g[k];
    }
  }
}

GPN_VECTOR_CLONES
static inline void normalise_totals_backward(const float* norm_weight, int64_t rows, int64_t width,
                                             const float* totals, const float* mean, const float* factor,
                                             float* grads, const ResidualSums<float>& sums) {
  normalise_totals_backward_body(norm_weight, rows, width, totals, mean, factor, grads, sums);
}
GPN_VECTOR_CLONES
static inline void normalise_totals_backward(const double* norm_weight, int64_t rows, int64_t width,
                                             const double* totals, const double* mean, const double* factor,
                                             double* grads, const ResidualSums<double>& sums) {
  normalise_totals_backward_body(norm_weight, rows, width, totals, mean, factor, grads, sums);
}

// Runs f(row, count) for chunks of kRowChunk rows.
template <class Parallel, class F>
void for_each_chunk(const Parallel& parallel, int64_t rows, int64_t width, const F& f) {
  const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
  const Pieces pieces{chunks, std::clamp<int64_t>(chunks, 1, parallel.shares(rows * width))};
  parallel(pieces.tasks, [&](int64_t task) {
    for (int64_t chunk = pieces.begin(task); chunk < pieces.end(task); ++chunk) {
      const int64_t row = chunk * kRowChunk;
      f(row, std::min(kRowChunk, rows - row));
    }
  });
}

// The rows of a tile in the type that they are computed in; `room` has place for them where that is another.
template <class Parallel, class T>
const Sum<T>* widened(const Parallel& parallel, const T* x, int64_t rows, int64_t width, Sum<T>* room) {
  if constexpr (std::is_same_v<T, Sum<T>>) {
    return x;
  } else {
    for_each_chunk(parallel, rows, width, [&](int64_t row, int64_t count) {
      for (int64_t i = row * width; i < (row + count) * width; ++i) room[i] = Sum<T>(x[i]);
    });
    return room;
  }
}

// A hidden layer after its product: z += bias, and without dropout its ReLU.
template <class W>
void add_bias(const W* bias, bool relu, int64_t rows, int64_t width, W* z) {
  const W least = relu ? W(0) : -std::numeric_limits<W>::infinity();
  for (const W* end = z + rows * width; z < end; z += width) {
    for (int64_t k = 0; k < width; ++k) {
      const W y = z[k] + bias[k];
      z[k] = least > y ? least : y;  // NaN stays
    }
  }
}

// Its backward, in place: the gradient of what the product gave. sum += that of the bias.
template <class W>
void add_bias_backward(W scale, int64_t rows, int64_t width, const W* z, W* grad, W* sum) {
  for (const W* end = z + rows * width; z < end; z += width, grad += width) {
    for (int64_t k = 0; k < width; ++k) {
      grad[k] *= z[k] > 0 ? scale : W(0);
      sum[k] += grad[k];
    }
  }
}

// Computes `count` rows x, of which the first has number `first` among all, and keeps what backward takes of
// them from row `at` on. out: what comes out of the LayerNorm; may be where its input is kept, or null.
template <class Parallel, class W, class Products>
void residual_rows(const Parallel& parallel, const Residual<W>& block, const W* x, int64_t first,
                   int64_t count, Products& products, const KeptRows<W>& kept, int64_t at, W* out) {
  const int64_t width = block.width, last = block.layers() - 1;
  const W* z = x;
  for (int64_t layer = 0; layer < last; ++layer) {
    W* to = kept.out(layer, at);
    products.rows(layer, z, count, to);
    for_each_chunk(parallel, count, width, [&](int64_t row, int64_t rows) {
      W* y = to + row * width;
      add_bias(block.bias[size_t(layer)], block.seed == nullptr, rows, width, y);
      if (block.seed != nullptr) {
        dropout_kernel(Alone(), block.dropout, block.seed, Scorer<W>::place(layer, first + row, width),
                       rows * width, y, y);
      }
    });
    z = to;
  }
  W* total = kept.total(at);
  products.rows(last, z, count, total);
  for_each_chunk(parallel, count, width, [&](int64_t row, int64_t rows) {
    normalise_totals(block.bias.back(), block.norm_weight, block.norm_bias, rows, width, x + row * width,
                     total + row * width, kept.mean(at + row), kept.factor(at + row),
                     out ? out + row * width : nullptr);
  });
}

// Memory for what backward takes of a tile.
template <class W, class Scratch>
KeptRows<W> kept_tile(const Residual<W>& block, int64_t rows, const Scratch& scratch) {
  const int64_t width = block.width, layers = block.layers();
  return {room<W>(scratch, KeptRows<W>::size(rows, width, layers)), rows, width, layers};
}

// out[i] = the block of row i; with clusters, out[c] = its sum over the rows of cluster c. Without them
// num_clusters is -1. Where `kept` has
// memory, it takes what backward takes of all rows.
template <class Parallel, class T, class Products, class Scratch>
void residual_kernel(const Parallel& parallel, const Residual<Sum<T>>& block, const Segments<>& segments,
                     const T* x, int64_t tile_rows, Products& products, const KeptRows<Sum<T>>& kept, T* out,
                     const Scratch& scratch) {
  using W = Sum<T>;
  const auto [cluster, rows, width, num_clusters] = segments;
  const bool sums_up = num_clusters >= 0;
  const int64_t most = std::min(tile_rows, rows);
  W* sums = nullptr;
  if (sums_up) {
    check_clusters(parallel, cluster, rows, -1, num_clusters);
    sums = room_for_sums(out, num_clusters * width, scratch);
    clear(parallel, sums, num_clusters * width);
  }
  const bool keeps = kept.memory != nullptr;
  const KeptRows<W> tile = keeps ? kept : kept_tile(block, most, scratch);
  // A tile of the results, which may be in the place of what is not kept.
  const bool has_place = !sums_up && std::is_same_v<T, W>;
  W* tile_out = has_place ? nullptr : keeps ? room<W>(scratch, most * width) : tile.total(0);
  W* wide = std::is_same_v<T, W> ? nullptr : room<W>(scratch, most * width);

  for (int64_t begin = 0; begin < rows; begin += tile_rows) {
    const int64_t count = std::min(tile_rows, rows - begin);
    W* to = tile_out;
    if constexpr (std::is_same_v<T, W>) {
      if (has_place) to = out + begin * width;
    }
    residual_rows(parallel, block, widened(parallel, x + begin * width, count, width, wide), begin, count,
                  products, tile, keeps ? begin : 0, to);
    if (sums_up) {
      accumulate(parallel, Segments<>{cluster + begin, count, width, num_clusters}, to, sums);
    } else {
      finish_sums(parallel, to, nullptr, count, width, out + begin * width);
    }
  }
  if (sums_up) finish_sums(parallel, sums, nullptr, num_clusters, width, out);
}

// grad: of the results; with clusters, of their sums. `kept`: what forward kept; nothing where it has no
// memory.
template <class Parallel, class T, class Products, class Scratch>
void residual_backward_kernel(const Parallel& parallel, const Residual<Sum<T>>& block,
                              const Segments<>& segments, const T* grad, const T* x, int64_t tile_rows,
                              Products& products, const KeptRows<Sum<T>>& kept, T* grad_x,
                              const ResidualGradients<Sum<T>>& grads, const Scratch& scratch) {
  using W = Sum<T>;
  const auto [cluster, rows, width, num_clusters] = segments;
  const bool sums_up = num_clusters >= 0;
  if (sums_up) check_clusters(parallel, cluster, rows, -1, num_clusters);
  const int64_t most = std::min(tile_rows, rows), last = block.layers() - 1;
  const int64_t chunks = (most + kRowChunk - 1) / kRowChunk, sums_size = ResidualSums<W>::kCount * width;
  const bool keeps = kept.memory != nullptr;
  const KeptRows<W> tile = keeps ? kept : kept_tile(block, most, scratch);
  W* wide = std::is_same_v<T, W> ? nullptr : room<W>(scratch, most * width);
  W* grad_total = room<W>(scratch, most * width);
  // What comes out of a Linear's backward; out of the first one's, where it stays if the types are the same.
  constexpr bool kInPlace = std::is_same_v<T, W>;
  W* grad_rows[] = {last > 1 || !kInPlace ? room<W>(scratch, most * width) : nullptr,
                    last > 0 ? room<W>(scratch, most * width) : nullptr};
  W* partial = room<W>(scratch, chunks * sums_size);
  const W scale = block.seed == nullptr ? W(1) : block.dropout.scale;
  // Of every Linear's bias; after these, of the LayerNorm's weight and bias.
  std::vector<double> sum(size_t((last + 3) * width), 0);
  const auto add_partial = [&](int64_t used, int64_t size, double* to) {
    for (int64_t chunk = 0; chunk < used; ++chunk) {
      for (int64_t k = 0; k < size; ++k) to[k] += double(partial[chunk * size + k]);
    }
  };

  for (int64_t begin = 0; begin < rows; begin += tile_rows) {
    const int64_t count = std::min(tile_rows, rows - begin), at = keeps ? begin : 0;
    const int64_t used = (count + kRowChunk - 1) / kRowChunk;
    const W* z = widened(parallel, x + begin * width, count, width, wide);
    if (!keeps) residual_rows<Parallel, W>(parallel, block, z, begin, count, products, tile, at, nullptr);
    for_each_chunk(parallel, count, width, [&](int64_t row, int64_t size) {
      W* g = grad_total + row * width;
      for (int64_t i = 0; i < size; ++i) {
        const int64_t from = sums_up ? cluster[begin + row + i] : begin + row + i;
        for (int64_t k = 0; k < width; ++k) g[i * width + k] = from < 0 ? W(0) : W(grad[from * width + k]);
      }
      W* sums = partial + row / kRowChunk * sums_size;
      std::fill(sums, sums + sums_size, W(0));
      normalise_totals_backward(block.norm_weight, size, width, tile.total(at + row), tile.mean(at + row),
                                tile.factor(at + row), g, ResidualSums<W>::at(sums, width));
    });
    add_partial(used, sums_size, sum.data() + last * width);

    const W* from = grad_total;
    for (int64_t layer = last; layer >= 0; --layer) {
      W* to = grad_rows[layer % 2];
      if constexpr (kInPlace) {
        if (layer == 0) to = grad_x + begin * width;
      }
      products.weight_backward(layer, from, layer > 0 ? tile.out(layer - 1, at) : z, count);
      products.rows_backward(layer, from, count, to);
      if (layer > 0) {
        for_each_chunk(parallel, count, width, [&](int64_t row, int64_t size) {
          W* sums = partial + row / kRowChunk * width;
          std::fill(sums, sums + width, W(0));
          add_bias_backward(scale, size, width, tile.out(layer - 1, at + row), to + row * width, sums);
        });
        add_partial(used, width, sum.data() + (layer - 1) * width);
      }
      from = to;
    }
    for_each_chunk(parallel, count, width, [&](int64_t row, int64_t size) {
      for (int64_t i = row * width; i < (row + size) * width; ++i) {
        grad_x[begin * width + i] = T(from[i] + grad_total[i]);
      }
    });
  }

  const auto store = [&](int64_t number, W* to) {
    for (int64_t k = 0; k < width; ++k) to[k] = W(sum[size_t(number * width + k)]);
  };
  for (int64_t layer = 0; layer <= last; ++layer) store(layer, grads.bias[size_t(layer)]);
  store(last + 1, grads.norm_weight);
  store(last + 2, grads.norm_bias);
}

}  // namespace gpn::cpu
