// What an edge scorer gives before its sigmoid, on CUDA: the features of two nodes in, a score out, and
// backward. A warp takes kRows pairs through all layers; their rows stay in shared memory. Products are those
// of float32 (or float64) and run without tensor cores.
//
// Backward keeps no row per pair. It goes over the pairs twice, by their first nodes and by their second
// ones, and computes each anew, so that what a node gathers is a sum over neighbours in that order. The first
// time it also adds up the gradients of the parameters. Sums that a block cannot finish, because another one
// has a part of them, go to memory, to be added in a fixed order.
//
// Where nodes have many pairs, the first time takes a product less: with x_i and x_j for the features of a
// pair and d for the gradient of what its first layer makes of them, M = sum over j of the outer products of
// d and x_j holds both the gradient of the weight W, in which x_i scales the columns of M, and that of x_i,
// the sums over the columns of W * M.
#pragma once

#include "mlp.cuh"
#include "pair_dot.cuh"

namespace gpn::cuda {

constexpr int kForwardBytes = 32 << 10;   // shared memory of a block
constexpr int kBackwardBytes = 46 << 10;  // the same, the largest that needs no opt-in but for some ids
// From how many pairs of each node on M (above) pays: a node costs two products more, and the reading of W.
constexpr int kPairsOfNode = 4;

// ------------------------------------------------------------------------------------------------ of a warp

// row = the product of two rows of features, zeros after it and where `usable` is false.
template <class T>
__device__ void multiply_ends(const T* a, const T* b, bool usable, int64_t width, int64_t stride, int lane,
                              Sum<T>* row) {
  for (int64_t k = lane; k < stride; k += kWarp) {
    row[k] = usable && k < width ? Sum<T>(a[k]) * Sum<T>(b[k]) : Sum<T>(0);
  }
}

// Of each row of a warp: x = (x + bias - mean) * factor, where the latter two make the mean 0 and the
// variance 1.
template <class W>
__device__ void normalise_rows(const W* bias, int64_t width, int stride, int lane, W* x,
                               W (&factor)[kRows<W>]) {
  W mean[kRows<W>] = {}, squares[kRows<W>] = {};
  GPN_NO_UNROLL
  for (int64_t k = lane; k < width; k += kWarp) {
    const W added = bias[k];
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) mean[r] += x[r * stride + k] += added;
  }
  GPN_UNROLL
  for (int r = 0; r < kRows<W>; ++r) mean[r] = warp_sum(mean[r]) / W(width);
  GPN_NO_UNROLL
  for (int64_t k = lane; k < width; k += kWarp) {
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      squares[r] += (x[r * stride + k] - mean[r]) * (x[r * stride + k] - mean[r]);
    }
  }
  GPN_UNROLL
  for (int r = 0; r < kRows<W>; ++r) {
    factor[r] = W(1) / sqrt(warp_sum(squares[r]) / W(width) + W(kLayerNormEps));
  }
  GPN_NO_UNROLL
  for (int64_t k = lane; k < width; k += kWarp) {
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) x[r * stride + k] = (x[r * stride + k] - mean[r]) * factor[r];
  }
}

// Of each row: z = dropout(ReLU(x * norm weight + norm bias)); in place is fine. place(r): of the row's first
// value.
template <class W, class Place>
__device__ void activate_rows(const PackedLayers<W>& layers, int64_t layer, const Activation<W>& activation,
                              const Place& place, int lane, const W* x, W* z) {
  const W *weight = layers.norm_weight(layer), *bias = layers.norm_bias(layer);
  const int stride = int(layers.stride());
  GPN_NO_UNROLL
  for (int k = lane; k < stride; k += kWarp) {
    const bool usable = k < layers.width;
    const W by = usable ? weight[k] : W(0), added = usable ? bias[k] : W(0);
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      z[r * stride + k] =
          usable ? Dropout<W>::positive(x[r * stride + k] * by + added) * activation.factor(place(r) + k)
                 : W(0);
    }
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
      W factor[kRows<W>];
      normalise_rows(layers.bias(layer), width, int(stride), lane, hidden, factor);
      const auto place = [&](int r) { return Scorer<W>::place(layer, begin + r, width); };
      activate_rows(layers, layer, activation, place, lane, hidden, hidden);
      __syncwarp();
      W* used = rows;
      rows = hidden;
      hidden = used;
    }
    W sum[kRows<W>] = {};
    for (int64_t k = lane; k < width; k += kWarp) {
      const W by = weight[k];
      GPN_UNROLL
      for (int r = 0; r < kRows<W>; ++r) sum[r] += rows[r * stride + k] * by;
    }
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      sum[r] = warp_sum(sum[r]);
      if (lane == 0 && begin + r < pairs.count) out[begin + r] = sum[r] + *bias;
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
    return 2 * layers * kRows<W> * stride + layers * kRows<W> + sum_values(stride) + kNodeParts * kWarp;
  }
  static GPN_HOST_DEVICE int64_t sum_values(int64_t stride) { return kSums * stride + 4; }
  static GPN_HOST_DEVICE int64_t block_values(int64_t stride) { return 2 * stride; }

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
  // Of add_node_products: eight values a thread, or a row.
  __device__ W* parts() const { return gathered() + stride; }

  static constexpr int kSums = 4;
  static constexpr int kNodeParts = 8;
};

// The gradients of the parameters that a block adds up: of every layer the weight, [stride, stride], then
// bias, norm weight and norm bias; then the last weight and the last bias, [stride] each.
GPN_HOST_DEVICE int64_t all_partial_values(int64_t layers, int64_t stride) {
  return layers * partial_values(stride) + 2 * stride;
}

// Rows of a warp in a hidden layer: from the gradient of what comes out (grad_z, or, if that is null, in the
// last layer, grad[r] times the weight after it) to that of what goes into the LayerNorm, written over x,
// which is what was normalised.
template <class W, class Place>
__device__ void normalise_rows_backward(const PackedLayers<W>& layers, int64_t layer,
                                        const Activation<W>& activation, const Place& place, int lane,
                                        const W* grad, const W* last_weight, const W* grad_z, const W* factor,
                                        W* x, W* sums) {
  const int width = int(layers.width), stride = int(layers.stride());
  const W *weight = layers.norm_weight(layer), *bias = layers.norm_bias(layer);
  const auto kept = [&](int r, int k) { return activation.factor(place(r) + k); };
  // The gradient of what comes out of the LayerNorm. `after`: of column k, the weight after the last layer.
  const auto grad_y = [&](int r, int k, W y, W kept, W after) {
    return y > 0 ? (grad_z != nullptr ? grad_z[r * stride + k] : grad[r] * after) * kept : W(0);
  };
  W mean[kRows<W>] = {}, slope[kRows<W>] = {};
  GPN_NO_UNROLL
  for (int k = lane; k < width; k += kWarp) {
    const W by = weight[k], added = bias[k], after = grad_z == nullptr ? last_weight[k] : W(0);
    W weight_sum = 0, bias_sum = 0, after_sum = 0;
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const W value = x[r * stride + k], y = value * by + added, keeps = kept(r, k);
      const W g = grad_y(r, k, y, keeps, after);
      mean[r] += g * by;
      slope[r] += g * by * value;
      weight_sum += g * value;
      bias_sum += g;
      after_sum += grad[r] * (Dropout<W>::positive(y) * keeps);
    }
    if (sums != nullptr) {
      sums[stride + k] = weight_sum;
      sums[2 * stride + k] = bias_sum;
      sums[3 * stride + k] = after_sum;
    }
  }
  GPN_UNROLL
  for (int r = 0; r < kRows<W>; ++r) {
    mean[r] = warp_sum(mean[r]) / W(width);
    slope[r] = warp_sum(slope[r]) / W(width);
  }
  GPN_NO_UNROLL
  for (int k = lane; k < width; k += kWarp) {
    const W by = weight[k], added = bias[k], after = grad_z == nullptr ? last_weight[k] : W(0);
    W sum = 0;
    GPN_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const W value = x[r * stride + k];
      const W g = grad_y(r, k, value * by + added, kept(r, k), after);
      sum += x[r * stride + k] = factor[r] * (g * by - mean[r] - value * slope[r]);
    }
    if (sums != nullptr) sums[k] = sum;
  }
}

// The same for pairs of one node, x, where z has the features of their other nodes, so that x would have to
// be multiplied into each row. Summed up first, the outer products also hold the gradient of x, in as many
// parts as this gives, [parts, stride]: the sum over j of weight[j, k] times that of g[row, j] * z[row, k].
template <class T>
__device__ int add_node_products(const Sum<T>* g, const Sum<T>* z, int rows, const T* x, int width,
                                 int stride, const Sum<T>* weight, Sum<T>* total, Sum<T>* parts) {
  using W = Sum<T>;
  constexpr int kHalves = sizeof(W) == 8 ? 1 : 2;  // for more there are no registers
  using Tile = OuterTile<W, 1, kHalves>;
  const int across = Tile::across(stride), down = Tile::down(stride);
  const int fitting = int(blockDim.x) / across, most = fitting < down ? fitting : down;
  const int count = most > 1 ? most : 1;
  for (int at = threadIdx.x; at < across * count; at += blockDim.x) {
    const int k = 4 * (at % across), part = at / across;
    Four<W> sum[kHalves] = {};
    GPN_NO_UNROLL
    for (int j = 4 * part; j < 4 * down; j += 4 * count) {
      const W* from = weight + int64_t(j) * stride + k;
      W* to = total + int64_t(j) * stride + k;
      const Tile products(g + j, z + k, rows, stride);
      Four<W> own[kHalves];  // no earlier: there are few registers
      GPN_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        const int first = k + half * (stride / 2);
        GPN_UNROLL
        for (int i = 0; i < 4; ++i) own[half].value[i] = first + i < width ? W(x[first + i]) : W(0);
      }
      products.each(stride, [&](const Four<W>& product, int place, int half) {
        const Four<W> by = load(from + place);
        Four<W> value = load(to + place);
        GPN_UNROLL
        for (int i = 0; i < 4; ++i) {
          sum[half].value[i] += by.value[i] * product.value[i];
          value.value[i] += own[half].value[i] * product.value[i];
        }
        store(value, to + place);
      });
    }
    GPN_UNROLL
    for (int half = 0; half < kHalves; ++half)
      store(sum[half], parts + part * stride + k + half * (stride / 2));
  }
  return count;
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
  // Of the rows at hand.
  constexpr int kMostRows = kMlpThreads / kWarp * kRows<W>;
  __shared__ int64_t owners[kMostRows], items[kMostRows];
  __shared__ W grads[kMostRows];
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
    for (int i = lane; i < Memory::sum_values(stride); i += kWarp) sums[i] = 0;
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
    const bool by_node =
        partial != nullptr && int64_t(owner_of[size - 1] - *owner_of + 1) * kPairsOfNode <= size;
    int64_t owner = int64_t(*owner_of) - offset;  // whose sum `memory.gathered()` is
    bool is_first = true;                         // of the chunk
    for (int64_t k = threadIdx.x; k < width; k += blockDim.x) memory.gathered()[k] = 0;

    // Adds rows to what their owners gather: number r is of row_owners[r * each]. Columns are independent.
    // All threads follow the owners.
    const auto gather = [&](const W* rows, int count, const int64_t* row_owners, int each) {
      for (int64_t k = threadIdx.x; k < width; k += blockDim.x) {
        W sum = memory.gathered()[k];
        int64_t at = owner;
        bool first = is_first;
        GPN_NO_UNROLL
        for (int r = 0; r < count; ++r) {
          if (row_owners[r * each] != at) {
            if (first) {
              gathered.open[2 * chunk * width + k] = sum;
            } else {
              gathered.sums[at * width + k] += sum;
            }
            at = row_owners[r * each];
            first = false;
            sum = 0;
          }
          sum += rows[int64_t(r) * stride + k];
        }
        memory.gathered()[k] = sum;
      }
      const int64_t newest = row_owners[(count - 1) * each];
      is_first = is_first && newest == owner;
      owner = newest;
    };

    for (int step = 0; step < size; step += memory.rows) {
      const int own_step = step + warp * kRows<W>, first_row = warp * kRows<W>;
      const int count = size - step < memory.rows ? size - step : memory.rows;
      GPN_NO_UNROLL
      for (int r = 0; r < kRows<W>; ++r) {
        const bool usable = own_step + r < size;
        const int64_t p = usable ? int64_t(item_of[own_step + r]) : 0;
        multiply_ends(h + (usable ? pairs.first[p] : 0) * width, h + (usable ? pairs.second[p] : 0) * width,
                      usable, width, stride, lane, memory.input(0) + own + r * stride);
        if (lane == 0) {
          items[first_row + r] = p;
          owners[first_row + r] =
              usable ? int64_t(owner_of[own_step + r]) - offset : int64_t(pairs.num_nodes);
          grads[first_row + r] = usable ? grad[p] : W(0);
        }
      }
      __syncwarp();
      // Of what goes into the first layer, or of its gradient, and of the features at the other end.
      const auto with_other = [&](const auto& use) {
        GPN_NO_UNROLL
        for (int r = 0; r < kRows<W> && own_step + r < size; ++r) {
          const int64_t p = items[first_row + r];
          const T* other = h + (by_second ? pairs.first[p] : pairs.second[p]) * width;
          W* row = memory.input(0) + own + r * stride;
          for (int64_t k = lane; k < width; k += kWarp) use(row[k], W(other[k]));
        }
      };
      const auto place_in = [&](int64_t layer) {
        return [&, layer](int r) { return Scorer<W>::place(layer, items[first_row + r], width); };
      };
      for (int layer = 0; layer <= last; ++layer) {
        W* x = memory.normalised(layer) + own;
        multiply_rows(memory.input(layer) + own, layers.transposed(layer), stride, lane, x);
        __syncwarp();
        W factor[kRows<W>];
        normalise_rows(layers.bias(layer), width, stride, lane, x, factor);
        GPN_UNROLL
        for (int r = 0; r < kRows<W>; ++r) {
          if (lane == 0) memory.factor(layer)[first_row + r] = factor[r];
        }
        if (layer < last) {
          activate_rows(layers, layer, activation, place_in(layer), lane, x, memory.input(layer + 1) + own);
        }
        __syncwarp();
      }
      for (int layer = last; layer >= 0; --layer) {
        W *x = memory.normalised(layer) + own, *z = memory.input(layer) + own;
        normalise_rows_backward(layers, layer, activation, place_in(layer), lane, grads + first_row,
                                last_weight, layer == last ? nullptr : memory.input(layer + 1) + own,
                                memory.factor(layer) + first_row, x, sums);
        if (sums != nullptr && layer == last && lane == 0) {
          W sum = 0;
          GPN_NO_UNROLL
          for (int r = 0; r < kRows<W>; ++r) sum += grads[first_row + r];
          sums[Memory::kSums * stride] = sum;
        }
        const bool by_products = layer == 0 && by_node;
        if (by_products) with_other([](W& value, W other) { value = other; });
        __syncwarp();
        if (partial != nullptr) {
          __syncthreads();
          W* total = partial + layer * partial_values(stride);
          if (!by_products) {
            add_outer_products(memory.normalised(layer), memory.input(layer), memory.rows, stride, total);
          }
          const int columns = layer == last ? Memory::kSums * stride + 1 : 3 * stride;
          for (int i = threadIdx.x; i < columns; i += blockDim.x) {
            W sum = 0;
            GPN_NO_UNROLL
            for (int from = 0; from < warps; ++from) sum += memory.sums(from)[i];
            total[int64_t(stride) * stride + i] += sum;  // the last weight and bias are behind the last layer
          }
          __syncthreads();
        }
        if (!by_products) {
          multiply_rows(x, layers.weight(layer), stride, lane, z);
          __syncwarp();
        }
      }
      if (by_node) {
        for (int from = 0, to; from < count; from = to) {
          for (to = from + 1; to < count && owners[to] == owners[from];) ++to;
          const int parts = add_node_products(
              memory.normalised(0) + from * stride, memory.input(0) + from * stride, to - from,
              h + owners[from] * width, int(width), stride, layers.weight(0), partial, memory.parts());
          __syncthreads();
          gather(memory.parts(), parts, owners + from, 0);
          __syncthreads();
        }
      } else {
        with_other([](W& value, W other) { value *= other; });
        __syncthreads();
        gather(memory.input(0), count, owners, 1);
        __syncthreads();
      }
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
