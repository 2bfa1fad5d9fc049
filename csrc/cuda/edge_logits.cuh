// What an edge scorer gives before its sigmoid, on CUDA: the features of two nodes in, a score out, and
// backward. A warp takes kRows pairs through all layers; their rows stay in shared memory. Products are those
// of float32 (or float64) and run without tensor cores.
//
// Backward keeps no row per pair. It goes over the pairs twice, by their first nodes and by their second
// ones, and computes each anew, so that what a node gathers is a sum over neighbours in that order. The first
// time it also adds up the gradients of the parameters. Sums that a block cannot finish, because another one
// has a part of them, go to memory, to be added in a fixed order.
#pragma once

#include "mlp.cuh"
#include "pair_dot.cuh"

namespace gpn::cuda {

constexpr int kForwardBytes = 32 << 10;   // shared memory of a block
constexpr int kBackwardBytes = 46 << 10;  // the same, the largest that needs no opt-in but for some ids

// ------------------------------------------------------------------------------------------------ of a warp

// row = the product of two rows of features, zeros after it and where `usable` is false.
template <class T>
__device__ void multiply_ends(const T* a, const T* b, bool usable, int64_t width, int64_t stride, int lane,
                              Sum<T>* row) {
  for (int64_t k = lane; k < stride; k += kWarp) {
    row[k] = usable && k < width ? Sum<T>(a[k]) * Sum<T>(b[k]) : Sum<T>(0);
  }
}

// z = dropout(ReLU(x * norm weight + norm bias)); in place is fine. The first value has the place `first`.
template <class W>
__device__ void activate_row(const PackedLayers<W>& layers, int64_t layer, const Activation<W>& activation,
                             int64_t first, int lane, const W* x, W* z) {
  const W *weight = layers.norm_weight(layer), *bias = layers.norm_bias(layer);
  for (int64_t k = lane; k < layers.stride(); k += kWarp) {
    z[k] = k < layers.width ? Dropout<W>::positive(x[k] * weight[k] + bias[k]) * activation.factor(first + k)
                            : W(0);
  }
}

// -------------------------------------------------------------------------------------------------- forward

// How many values a warp keeps: what goes into a layer and what comes out.
template <class W>
GPN_HOST_DEVICE int64_t forward_values(int64_t stride) {
  return 2 * kRows<W> * stride;
}

// spill: memory for the rows where a block's shared memory is too small, else null.
// Registers: 168.
template <class T>
__global__ void __launch_bounds__(kMlpThreads, kResident)
    score_pairs(Pairs pairs, const T* h, PackedLayers<Sum<T>> layers, Activation<Sum<T>> activation,
                const Sum<T>* weight, const Sum<T>* bias, Sum<T>* spill, Sum<T>* out) {
  using W = Sum<T>;
  __shared__ Four<W> shared[kForwardBytes / sizeof(Four<W>)];
  const int lane = threadIdx.x % kWarp;
  const int64_t width = layers.width, stride = layers.stride();
  W* rows = spill != nullptr ? spill + thread_index() / kWarp * forward_values<W>(stride)
                             : reinterpret_cast<W*>(shared) + threadIdx.x / kWarp * forward_values<W>(stride);
  W* hidden = rows + kRows<W> * stride;
  for (int64_t begin = thread_index() / kWarp * kRows<W>; begin < pairs.count;
       begin += thread_count() / kWarp * kRows<W>) {
    GPN_NO_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const int64_t p = begin + r;
      const bool usable = p < pairs.count && pair_in_range(pairs, p);
      multiply_ends(h + (usable ? pairs.first[p] : 0) * width, h + (usable ? pairs.second[p] : 0) * width,
                    usable, width, stride, lane, rows + r * stride);
    }
    __syncwarp();
    for (int64_t layer = 0; layer < layers.count; ++layer) {
      multiply_rows(rows, layers.transposed(layer), stride, lane, hidden);
      __syncwarp();
      GPN_NO_UNROLL
      for (int r = 0; r < kRows<W>; ++r) {
        W* row = hidden + r * stride;
        normalise_row(layers.bias(layer), width, lane, row);
        activate_row(layers, layer, activation, Scorer<W>::place(layer, begin + r, width), lane, row, row);
      }
      __syncwarp();
      W* used = rows;
      rows = hidden;
      hidden = used;
    }
    GPN_NO_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      W sum = 0;
      for (int64_t k = lane; k < width; k += kWarp) sum += rows[r * stride + k] * weight[k];
      sum = warp_sum(sum);
      if (lane == 0 && begin + r < pairs.count) out[begin + r] = sum + *bias;
    }
    __syncwarp();
  }
}

template <class T, class Products, class Scratch>
void edge_logits_kernel(const Launcher& launch, const Scorer<Sum<T>>& scorer, const T* h, const Pairs& pairs,
                        int64_t, const Products& products, Sum<T>* out, const Scratch& scratch) {
  using W = Sum<T>;
  const PackedLayers<W> layers = pack_layers(launch, scorer.hidden, scorer.width, products, false, scratch);
  const int64_t values = forward_values<W>(layers.stride());
  const int64_t fitting = fitting_warps(launch, kForwardBytes, values * int64_t(sizeof(W)), 0);
  Launcher warps = launch;
  warps.block_size = int(std::max<int64_t>(fitting, 1)) * kWarp;
  W* spill = nullptr;
  if (fitting == 0) {
    warps.max_blocks = std::min(launch.max_blocks, kSpillBlocks);
    spill = room<W>(scratch, warps.max_blocks * values);
  }
  const int64_t lanes = (pairs.count + kRows<W> - 1) / kRows<W> * kWarp;
  warps(score_pairs<T>, lanes, pairs, h, layers, Activation<W>{scorer.dropout, scorer.seed}, scorer.weight,
        scorer.bias, spill, out);
}

// ------------------------------------------------------------------------------------------------- backward

// The pairs in the order of the nodes at one of their ends: first ends have the owners 0, 1, ..., second ends
// those from num_nodes on. An item is a pair.
// Registers: 40.
template <class Index>
__global__ void own_each_end(Pairs pairs, Index* owner, Index* item) {
  for (int64_t i = thread_index(); i < 2 * pairs.count; i += thread_count()) {
    const bool second = i >= pairs.count;
    const int64_t p = second ? i - pairs.count : i;
    owner[i] = Index(!pair_in_range(pairs, p) ? 2 * pairs.num_nodes
                     : second                 ? pairs.num_nodes + pairs.second[p]
                                              : pairs.first[p]);
    item[i] = Index(p);
  }
}

// What a block keeps.
template <class W>
struct BackwardMemory {
  int layers, stride, rows;  // of a block
  W* memory;

  // Of a warp, and what a block has beside.
  static GPN_HOST_DEVICE int64_t warp_values(int64_t layers, int64_t stride) {
    return 2 * layers * kRows<W> * stride + layers * kRows<W> + sum_values(stride);
  }
  static GPN_HOST_DEVICE int64_t sum_values(int64_t stride) { return kSums * stride + 4; }
  static GPN_HOST_DEVICE int64_t block_values(int64_t stride) { return stride; }

  // What goes into a layer; in backward its gradient takes its place.
  __device__ W* input(int layer) const { return memory + int64_t(layer) * rows * stride; }
  // What is normalised in a layer; in backward the gradient of what goes into the LayerNorm.
  __device__ W* normalised(int layer) const { return input(layers + layer); }
  // By what it was multiplied.
  __device__ W* factor(int layer) const { return input(2 * layers) + layer * rows; }
  // Of each column, what a warp adds to the gradients of bias, norm weight, norm bias, and the last weight;
  // then what it adds to that of the last bias.
  __device__ W* sums(int warp) const { return factor(layers) + warp * sum_values(stride); }
  // What the node at hand has gathered.
  __device__ W* gathered() const { return sums(rows / kRows<W>); }

  static constexpr int kSums = 4;
};

// The gradients of the parameters that a block adds up: of every layer the weight, [stride, stride], then
// bias, norm weight and norm bias; then the last weight and the last bias, [stride] each.
GPN_HOST_DEVICE int64_t all_partial_values(int64_t layers, int64_t stride) {
  return layers * partial_values(stride) + 2 * stride;
}

// One row of a hidden layer: from the gradient of what comes out (grad_z, or in the last layer grad times the
// weight after it) to that of what goes into the LayerNorm, written over x, which is what was normalised.
template <class W>
__device__ void normalise_row_backward(const PackedLayers<W>& layers, int64_t layer,
                                       const Activation<W>& activation, int64_t first, int lane, W grad,
                                       const W* last_weight, const W* grad_z, W factor, W* x, W* sums) {
  const int64_t width = layers.width, stride = layers.stride();
  const W *weight = layers.norm_weight(layer), *bias = layers.norm_bias(layer);
  const auto kept = [&](int64_t k) { return activation.factor(first + k); };
  // The gradient of what comes out of the LayerNorm.
  const auto grad_y = [&](int64_t k, W y, W kept) {
    return y > 0 ? (grad_z != nullptr ? grad_z[k] : grad * last_weight[k]) * kept : W(0);
  };
  W sum = 0, slope_sum = 0;
  GPN_NO_UNROLL
  for (int64_t k = lane; k < width; k += kWarp) {
    const W y = x[k] * weight[k] + bias[k], by = kept(k), g = grad_y(k, y, by);
    sum += g * weight[k];
    slope_sum += g * weight[k] * x[k];
    if (sums != nullptr) {
      sums[stride + k] += g * x[k];
      sums[2 * stride + k] += g;
      if (grad_z == nullptr) sums[3 * stride + k] += grad * (Dropout<W>::positive(y) * by);
    }
  }
  const W mean = warp_sum(sum) / W(width), slope = warp_sum(slope_sum) / W(width);
  GPN_NO_UNROLL
  for (int64_t k = lane; k < width; k += kWarp) {
    const W g = grad_y(k, x[k] * weight[k] + bias[k], kept(k));
    x[k] = factor * (g * weight[k] - mean - x[k] * slope);
    if (sums != nullptr) sums[k] += x[k];
  }
}

// Where what nodes gather from their neighbours goes. A chunk finishes all of its nodes but the first and the
// last one, which others may have a part of.
template <class W, class Index>
struct Gathered {
  W* sums;  // [num_nodes, width]; added to
  W* open;  // [2 * chunks, width]: of the first node of a chunk, and of the last one if that differs
  Index* open_owner;   // [2 * chunks]
  Index* open_number;  // [2 * chunks]: 0, 1, ...
};

// by_second: whether nodes are second ends. partial: null, or where the gradients of the parameters go, one
// [all_partial_values] a block.
// Registers: 255.
template <class Index, class T>
__global__ void __launch_bounds__(kMlpThreads, kResident)
    gather_gradients(Pairs pairs, Runs<Index> runs, bool by_second, int64_t chunks, int chunk_items,
                     const Sum<T>* grad, const T* h, PackedLayers<Sum<T>> layers,
                     Activation<Sum<T>> activation, const Sum<T>* last_weight, Sum<T>* spill, Sum<T>* partial,
                     Gathered<Sum<T>, Index> gathered) {
  using W = Sum<T>;
  using Memory = BackwardMemory<W>;
  __shared__ Four<W> shared[kBackwardBytes / sizeof(Four<W>)];
  __shared__ int64_t owners[kMlpThreads / kWarp * kRows<W>];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int64_t width = layers.width;
  const int stride = int(layers.stride()), last = int(layers.count) - 1;
  const int64_t block_values =
      warps * Memory::warp_values(layers.count, stride) + Memory::block_values(stride);
  const Memory memory{last + 1, stride, warps * kRows<W>,
                      spill != nullptr ? spill + blockIdx.x * block_values : reinterpret_cast<W*>(shared)};
  const int64_t own = int64_t(warp) * kRows<W> * stride;  // where the rows of this warp begin
  W* sums = partial != nullptr ? memory.sums(warp) : nullptr;
  if (partial != nullptr) {
    partial += blockIdx.x * all_partial_values(layers.count, stride);
    for (int64_t i = threadIdx.x; i < all_partial_values(layers.count, stride); i += blockDim.x) {
      partial[i] = 0;
    }
  }
  const int64_t offset = by_second ? pairs.num_nodes : 0;
  const int64_t list_begin = int64_t(runs.begin[offset]);
  const int64_t list_end = int64_t(runs.begin[offset + pairs.num_nodes]);

  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t begin = list_begin + chunk * chunk_items;
    const int size =
        begin >= list_end ? 0 : int(list_end - begin < chunk_items ? list_end - begin : chunk_items);
    const Index* owner_of = runs.owner + begin;
    const Index* item_of = runs.item + begin;
    if (threadIdx.x < 2) {
      gathered.open_owner[2 * chunk + threadIdx.x] =
          Index(size > 0 ? int64_t(owner_of[threadIdx.x == 0 ? 0 : size - 1]) - offset : pairs.num_nodes);
      gathered.open_number[2 * chunk + threadIdx.x] = Index(2 * chunk + threadIdx.x);
    }
    if (size == 0) continue;
    int64_t owner = int64_t(*owner_of) - offset;  // whose sum `memory.gathered()` is
    bool is_first = true;                         // of the chunk
    for (int64_t k = threadIdx.x; k < width; k += blockDim.x) memory.gathered()[k] = 0;

    for (int step = 0; step < size; step += memory.rows) {
      const int own_step = step + warp * kRows<W>;
      GPN_NO_UNROLL
      for (int r = 0; r < kRows<W>; ++r) {
        const bool usable = own_step + r < size;
        const int64_t p = usable ? int64_t(item_of[own_step + r]) : 0;
        multiply_ends(h + (usable ? pairs.first[p] : 0) * width, h + (usable ? pairs.second[p] : 0) * width,
                      usable, width, stride, lane, memory.input(0) + own + r * stride);
        if (lane == 0) {
          owners[warp * kRows<W> + r] =
              usable ? int64_t(owner_of[own_step + r]) - offset : int64_t(pairs.num_nodes);
        }
      }
      __syncwarp();
      for (int layer = 0; layer <= last; ++layer) {
        W* x = memory.normalised(layer) + own;
        multiply_rows(memory.input(layer) + own, layers.transposed(layer), stride, lane, x);
        __syncwarp();
        GPN_NO_UNROLL
        for (int r = 0; r < kRows<W>; ++r) {
          const W factor = normalise_row(layers.bias(layer), width, lane, x + r * stride);
          if (lane == 0) memory.factor(layer)[warp * kRows<W> + r] = factor;
          if (layer == last) continue;
          const int64_t p = own_step + r < size ? int64_t(item_of[own_step + r]) : 0;
          activate_row(layers, layer, activation, Scorer<W>::place(layer, p, width), lane, x + r * stride,
                       memory.input(layer + 1) + own + r * stride);
        }
        __syncwarp();
      }
      for (int layer = last; layer >= 0; --layer) {
        W* x = memory.normalised(layer) + own;
        for (int i = lane; sums != nullptr && i < Memory::sum_values(stride); i += kWarp) sums[i] = 0;
        __syncwarp();
        GPN_NO_UNROLL
        for (int r = 0; r < kRows<W>; ++r) {
          const bool usable = own_step + r < size;
          const int64_t p = usable ? int64_t(item_of[own_step + r]) : 0;
          const W g = usable ? grad[p] : W(0);
          normalise_row_backward(layers, layer, activation, Scorer<W>::place(layer, p, width), lane, g,
                                 last_weight,
                                 layer == last ? nullptr : memory.input(layer + 1) + own + r * stride,
                                 memory.factor(layer)[warp * kRows<W> + r], x + r * stride, sums);
          if (sums != nullptr && layer == last && lane == 0) sums[Memory::kSums * stride] += g;
        }
        __syncwarp();
        if (partial != nullptr) {
          __syncthreads();
          W* total = partial + layer * partial_values(stride);
          add_outer_products(memory.normalised(layer), memory.input(layer), memory.rows, stride, total);
          const int columns = layer == last ? Memory::kSums * stride + 1 : 3 * stride;
          for (int i = threadIdx.x; i < columns; i += blockDim.x) {
            W sum = 0;
            for (int from = 0; from < warps; ++from) sum += memory.sums(from)[i];
            total[int64_t(stride) * stride + i] += sum;  // the last weight and bias are behind the last layer
          }
          __syncthreads();
        }
        multiply_rows(x, layers.weight(layer), stride, lane, memory.input(layer) + own);
        __syncwarp();
      }
      GPN_NO_UNROLL
      for (int r = 0; r < kRows<W> && own_step + r < size; ++r) {
        const int64_t p = int64_t(item_of[own_step + r]);
        const T* other = h + (by_second ? pairs.first[p] : pairs.second[p]) * width;
        W* row = memory.input(0) + own + r * stride;
        for (int64_t k = lane; k < width; k += kWarp) row[k] *= W(other[k]);
      }
      __syncthreads();
      // Columns are independent. All threads follow the owners.
      const int count = size - step < memory.rows ? size - step : memory.rows;
      for (int64_t k = threadIdx.x; k < width; k += blockDim.x) {
        W sum = memory.gathered()[k];
        int64_t at = owner;
        bool first = is_first;
        for (int r = 0; r < count; ++r) {
          if (owners[r] != at) {
            if (first) {
              gathered.open[2 * chunk * width + k] = sum;
            } else {
              gathered.sums[at * width + k] += sum;
            }
            at = owners[r];
            first = false;
            sum = 0;
          }
          sum += memory.input(0)[int64_t(r) * stride + k];
        }
        memory.gathered()[k] = sum;
      }
      is_first = is_first && owners[count - 1] == owner;
      owner = owners[count - 1];
      __syncthreads();
    }
    for (int64_t k = threadIdx.x; k < width; k += blockDim.x) {
      gathered.open[(2 * chunk + (is_first ? 0 : 1)) * width + k] = memory.gathered()[k];
      if (is_first) gathered.open[(2 * chunk + 1) * width + k] = 0;
    }
  }
}

// Registers: 32.
template <class T>
__global__ void round_all(const Sum<T>* values, int64_t count, T* out) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) out[i] = T(values[i]);
}

template <class Index, class T, class Products, class Scratch>
void edge_logits_backward(const Launcher& launch, const Scorer<Sum<T>>& scorer, const Sum<T>* grad,
                          const T* h, const Pairs& pairs, const Products& products, Sum<T>* grad_h,
                          const std::vector<ColumnGradients<Sum<T>>>& grads, Sum<T>* grad_bias,
                          const Scratch& scratch) {
  using W = Sum<T>;
  using Memory = BackwardMemory<W>;
  const int64_t width = scorer.width, nodes = pairs.num_nodes, items = 2 * pairs.count;
  const int chunk_items = 1 << launch.piece_bits;
  const int64_t chunks = (pairs.count + chunk_items - 1) / chunk_items;
  const PackedLayers<W> layers = pack_layers(launch, scorer.hidden, scorer.width, products, true, scratch);
  const int64_t stride = layers.stride(), values = all_partial_values(layers.count, stride);
  launch(fill<W>, nodes * width, grad_h, nodes * width, W(0));

  Index* owner = room<Index>(scratch, items);
  Index* item = room<Index>(scratch, items);
  launch(own_each_end<Index>, items, pairs, owner, item);
  const Runs<Index> runs = sort_by_owner(launch, owner, item, items, 2 * nodes, scratch);

  const int64_t warp_values = Memory::warp_values(layers.count, stride);
  const int64_t size = int64_t(sizeof(W)), block_values = Memory::block_values(stride);
  const int64_t fitting = fitting_warps(launch, kBackwardBytes, warp_values * size, block_values * size);
  Launcher blocks = launch;
  blocks.block_size = int(std::max<int64_t>(fitting, 1)) * kWarp;
  blocks.max_blocks = std::min({launch.max_blocks, chunks, fitting > 0 ? chunks : kSpillBlocks});
  W* spill = fitting > 0 ? nullptr : room<W>(scratch, blocks.max_blocks * (warp_values + block_values));
  Launcher adding = blocks;
  const int64_t fit = std::clamp(kPartialBytes / (values * size), kLeastPartials, kMostPartials);
  adding.max_blocks = std::min(blocks.max_blocks, fit);
  W* partial = room<W>(scratch, adding.max_blocks * values);

  const Gathered<W, Index> gathered{grad_h, room<W>(scratch, 2 * chunks * width),
                                    room<Index>(scratch, 2 * chunks), room<Index>(scratch, 2 * chunks)};
  Index* open_begin = room<Index>(scratch, nodes + 1);
  const Runs<Index> open{gathered.open_owner, gathered.open_number, open_begin, 2 * chunks, nodes};
  for (const bool by_second : {false, true}) {
    (by_second ? blocks : adding)(gather_gradients<Index, T>, chunks * blocks.block_size, pairs, runs,
                                  by_second, chunks, chunk_items, grad, h, layers,
                                  Activation<W>{scorer.dropout, scorer.seed}, scorer.weight, spill,
                                  by_second ? nullptr : partial, gathered);
    launch(find_begins<Index>, nodes + 1, open.owner, open.count, nodes, open_begin);
    fold(launch, open, width, RowTerm<W>{gathered.open, width}, AddTo<W>{grad_h}, scratch);
  }
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    const auto& to = grads[size_t(layer)];
    const LayerGradients<W> out{products.weight_gradient(layer),
                                to[0],
                                to[1],
                                to[2],
                                to[3],
                                layer + 1 == layers.count ? grad_bias : nullptr};
    launch(add_partials<W>, (width + 4) * width + 1, partial + layer * partial_values(stride),
           adding.max_blocks, values, width, stride, out);
  }
}

template <class T, class Products, class Scratch>
void edge_logits_backward_kernel(const Launcher& launch, const Scorer<Sum<T>>& scorer, const Sum<T>* grad,
                                 const T* h, const Pairs& pairs, int64_t, const Products& products, T* grad_h,
                                 const std::vector<ColumnGradients<Sum<T>>>& grads, Sum<T>* grad_bias,
                                 const Scratch& scratch) {
  using W = Sum<T>;
  const int64_t count = pairs.num_nodes * scorer.width;
  W* sums = nullptr;
  if constexpr (std::is_same_v<T, W>) {
    sums = grad_h;
  } else {
    sums = room<W>(scratch, count);
  }
  with_index(std::max(2 * pairs.count, 2 * pairs.num_nodes), [&](auto index) {
    edge_logits_backward<decltype(index)>(launch, scorer, grad, h, pairs, products, sums, grads, grad_bias,
                                          scratch);
  });
  if constexpr (!std::is_same_v<T, W>) launch(round_all<T>, count, sums, count, grad_h);
}

}  // namespace gpn::cuda
