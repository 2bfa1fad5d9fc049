// DeepSets' blocks, equal to a plain solver in float64: the CUDA kernels, run by their own launch code on the
// emulated device, and the kernels of the CPU.
#include <cuda_runtime.h>
//
#include "check.h"
#include "cpu/residual.h"
#include "cuda/residual.cuh"
#include "seeds.h"
#include "values.h"

namespace gpn::test {
namespace {

using emulation::record;

struct Linear {
  Values weight, bias;
};

struct Net {
  std::vector<Linear> linears;
  Values norm_weight, norm_bias;
};

struct Case {
  int64_t width, num_clusters;  // num_clusters is -1 where rows are results
  std::vector<int64_t> cluster;
  Values x, grad;
  Net net;
  Dropout<double> dropout;
  bool dropping;
  int64_t seed;

  int64_t rows() const { return int64_t(x.size()) / width; }
  int64_t results() const { return num_clusters < 0 ? rows() : num_clusters; }
};

struct Expected {
  Values out, grad_x;
  Net grads;
  double nearest;  // to 0, of what a ReLU was given
};

double dropout_factor(const Case& given, size_t layer, int64_t row, size_t k) {
  if (!given.dropping) return 1;
  const uint64_t place = (uint64_t(layer) << 48) + uint64_t(row * given.width) + k;
  const uint64_t word = random_word(uint64_t(given.seed), place / 4);
  return given.dropout.factor(uint16_t(word >> (16 * (place % 4))));
}

// One row at a time.
Expected plain_residual(const Case& given) {
  const size_t width = size_t(given.width), layers = given.net.linears.size();
  const Values zeros(width, 0);
  Expected all{Values(size_t(given.results()) * width, 0), Values(given.x.size(), 0), {}, 1};
  all.grads.linears.assign(layers, {Values(width * width, 0), zeros});
  all.grads.norm_weight = all.grads.norm_bias = zeros;
  for (int64_t row = 0; row < given.rows(); ++row) {
    const double* x = given.x.data() + size_t(row) * width;
    std::vector<Values> z{Values(x, x + width)};
    for (size_t l = 0; l < layers; ++l) {
      const Linear& linear = given.net.linears[l];
      Values out = linear.bias;
      for (size_t j = 0; j < width; ++j) {
        for (size_t k = 0; k < width; ++k) out[j] += linear.weight[j * width + k] * z[l][k];
        if (l + 1 == layers) continue;
        all.nearest = std::min(all.nearest, std::abs(out[j]));
        out[j] = std::max(out[j], 0.0) * dropout_factor(given, l, row, j);
      }
      z.push_back(out);
    }
    double mean = 0, variance = 0, level = 0, slope = 0;
    Values& y = z[layers];
    for (size_t k = 0; k < width; ++k) mean += (y[k] += x[k]) / double(width);
    for (const double value : y) variance += (value - mean) * (value - mean) / double(width);
    const double factor = 1 / std::sqrt(variance + kLayerNormEps);
    for (double& value : y) value = (value - mean) * factor;

    const int64_t to = given.num_clusters < 0 ? row : given.cluster[size_t(row)];
    Values g(width, 0);
    for (size_t k = 0; k < width && to >= 0; ++k) {
      const size_t at = size_t(to) * width + k;
      all.out[at] += y[k] * given.net.norm_weight[k] + given.net.norm_bias[k];
      all.grads.norm_weight[k] += given.grad[at] * y[k];
      all.grads.norm_bias[k] += given.grad[at];
      g[k] = given.grad[at] * given.net.norm_weight[k];
      level += g[k] / double(width);
      slope += g[k] * y[k] / double(width);
    }
    for (size_t k = 0; k < width; ++k) g[k] = factor * (g[k] - level - y[k] * slope);
    double* grad_x = all.grad_x.data() + size_t(row) * width;
    for (size_t k = 0; k < width; ++k) grad_x[k] = g[k];
    for (size_t l = layers; l-- > 0;) {
      Values below(width, 0);
      for (size_t j = 0; j < width; ++j) {
        all.grads.linears[l].bias[j] += g[j];
        for (size_t k = 0; k < width; ++k) {
          all.grads.linears[l].weight[j * width + k] += g[j] * z[l][k];
          below[k] += g[j] * given.net.linears[l].weight[j * width + k];
        }
      }
      for (size_t k = 0; k < width; ++k) {
        g[k] = l == 0 ? below[k] : z[l][k] > 0 ? below[k] * dropout_factor(given, l - 1, row, k) : 0;
      }
    }
    for (size_t k = 0; k < width; ++k) grad_x[k] += g[k];
  }
  return all;
}

int64_t few_rows(Random& random) { return random.of<int64_t>({0, 1, 7, 33, random.below(90)}); }

template <class T>
Case random_case(Random& random, int64_t rows) {
  Case given;
  using W = Sum<T>;
  given.width = random.of<int64_t>({1, 2, 5, 8, 17, 33});
  const int64_t clusters = random.of<int64_t>({0, 1, 3, 9, 60}), kind = random.below(4);
  given.num_clusters = kind == 0 ? -1 : clusters;
  for (int64_t row = 0; row < rows && kind != 0; ++row) {
    // Some in none; of the third kind all but a few in the same.
    given.cluster.push_back(kind == 3 && clusters > 0 && random.below(8) ? 0
                                                                         : random.below(clusters + 1) - 1);
  }
  given.x = random_values<T>(random, rows * given.width);
  given.grad = random_values<T>(random, given.results() * given.width);
  for (int64_t left = 1 + random.below(3); left > 0; --left) {
    given.net.linears.push_back(
        {random_values<W>(random, given.width * given.width), random_values<W>(random, given.width)});
  }
  given.net.norm_weight = random_values<W>(random, given.width);
  given.net.norm_bias = random_values<W>(random, given.width);
  given.dropping = random.below(2);
  given.dropout = {20000, double(W(1.44)), true};
  given.seed = int64_t(random() >> 1);
  return given;
}

// What the kernels read weights from, and write their gradients to.
template <class W>
struct Products {
  std::vector<const W*> weights;
  std::vector<W*> gradients;
  const W* weight(int64_t layer) const { return weights[size_t(layer)]; }
  W* weight_gradient(int64_t layer) const { return gradients[size_t(layer)]; }
};

// All that is computed of a case.
template <class T>
struct Results {
  T* out;
  T* grad_x;
  Products<Sum<T>> products;
  ResidualGradients<Sum<T>> grads;
};

// A case in memory.
template <class T>
struct Given {
  Residual<Sum<T>> block;
  Segments<> segments;
  const T* x;
  const T* grad;
  Results<T> results;
};

template <class T>
Given<T> in_memory(const Case& given, const Scratch& memory) {
  using W = Sum<T>;
  const int64_t width = given.width;
  Given<T> all{};
  Residual<W>& block = all.block;
  Results<T>& results = all.results;
  for (const Linear& linear : given.net.linears) {
    block.bias.push_back(on_device<W>(linear.bias, memory));
    results.products.weights.push_back(on_device<W>(linear.weight, memory));
    results.products.gradients.push_back(memory.array<W>(width * width));
    results.grads.bias.push_back(memory.array<W>(width));
  }
  block.norm_weight = on_device<W>(given.net.norm_weight, memory);
  block.norm_bias = on_device<W>(given.net.norm_bias, memory);
  results.grads.norm_weight = memory.array<W>(width);
  results.grads.norm_bias = memory.array<W>(width);
  block.width = width;
  block.dropout = {given.dropout.dropped, W(given.dropout.scale), true};
  block.seed = given.dropping ? memory.copy(std::vector<int64_t>{given.seed}) : nullptr;
  const int64_t* cluster = given.num_clusters < 0 ? nullptr : memory.copy(given.cluster);
  all.segments = {cluster, given.rows(), width, given.num_clusters};
  all.x = on_device<T>(given.x, memory);
  all.grad = on_device<T>(given.grad, memory);
  results.out = memory.array<T>(given.results() * width);
  results.grad_x = memory.array<T>(given.rows() * width);
  return all;
}

template <class T>
Results<T> run(const Case& given, const Launcher& launch, const Scratch& memory) {
  Given<T> all = in_memory<T>(given, memory);
  Results<T>& to = all.results;
  cuda::residual_kernel(launch, all.block, all.segments, all.x, 1, to.products, {}, to.out, memory);
  cuda::residual_backward_kernel(launch, all.block, all.segments, all.grad, all.x, 1, to.products, {},
                                 to.grad_x, to.grads, memory);
  return to;
}

template <class T>
void check(const Case& given, const Results<T>& results) {
  const Expected expected = plain_residual(given);
  CHECK(near(results.out, expected.out));
  // float32 cannot always tell on which side of 0 such a value is, and one that is alone in its row has no
  // variance.
  if (sizeof(Sum<T>) == 4 && (given.width == 1 || expected.nearest < 1e-4)) return;
  CHECK(near(results.grad_x, expected.grad_x));
  for (size_t l = 0; l < given.net.linears.size(); ++l) {
    CHECK(near(results.products.gradients[l], expected.grads.linears[l].weight));
    CHECK(near(results.grads.bias[l], expected.grads.linears[l].bias));
  }
  CHECK(near(results.grads.norm_weight, expected.grads.norm_weight));
  CHECK(near(results.grads.norm_bias, expected.grads.norm_bias));
}

template <class T>
void check_same_bits(const Case& given, const Results<T>& a, const Results<T>& b) {
  const int64_t width = given.width;
  CHECK(same_bits(a.out, b.out, given.results() * width));
  CHECK(same_bits(a.grad_x, b.grad_x, given.rows() * width));
  for (size_t l = 0; l < given.net.linears.size(); ++l) {
    CHECK(same_bits(a.products.gradients[l], b.products.gradients[l], width * width));
    CHECK(same_bits(a.grads.bias[l], b.grads.bias[l], width));
  }
  CHECK(same_bits(a.grads.norm_weight, b.grads.norm_weight, width));
}

// Leaves NaN in the shared memory, which no kernel may take for zeros.
template <class T>
void poison() {
  const Values nan(40, std::nan("")), matrix(40 * 40, 1);
  const Scratch memory;
  run<T>({40, 1, {0}, nan, nan, {{{matrix, nan}, {matrix, nan}}, nan, nan}, {}, false, 0}, {nullptr}, memory);
}

template <class T>
void test_cuda(Random& random) {
  const Case given = random_case<T>(random, few_rows(random));
  const Scratch memory(random());
  if (random.below(2)) poison<T>();
  const Launcher launch = random_launcher(random);
  const Results<T> results = run<T>(given, launch, memory);
  CHECK(record.assertions.empty());
  check(given, results);
  ++emulation::settings.seed;  // another schedule
  check_same_bits(given, results, run<T>(given, launch, memory));
}

// What the CPU takes from torch: threads, here one after the other in any order, and matrix products.
struct Shares {
  int64_t count;
  bool backwards;
  int64_t tasks(int64_t) const { return count; }
  int64_t shares(int64_t) const { return count; }
  template <class F>
  void operator()(int64_t tasks, const F& f) const {
    for (int64_t task = 0; task < tasks; ++task) f(backwards ? tasks - 1 - task : task);
  }
};

template <class W>
struct HostProducts {
  const Products<W>& on;
  int64_t width;

  void rows(int64_t layer, const W* z, int64_t count, W* out) const {
    multiply(on.weight(layer), z, count, 1, width, out);
  }
  void rows_backward(int64_t layer, const W* grad, int64_t count, W* out) const {
    multiply(on.weight(layer), grad, count, width, 1, out);
  }
  void weight_backward(int64_t layer, const W* grad, const W* z, int64_t count) const {
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t i = 0; i < width * width; ++i) {
        on.weight_gradient(layer)[i] += grad[row * width + i / width] * z[row * width + i % width];
      }
    }
  }

 private:
  void multiply(const W* weight, const W* z, int64_t count, int64_t step, int64_t stride, W* out) const {
    for (int64_t i = 0; i < count * width; ++i) {
      W sum = 0;
      for (int64_t k = 0; k < width; ++k) {
        sum += z[i / width * width + k] * weight[i % width * stride + k * step];
      }
      out[i] = sum;
    }
  }
};

// In tiles of so many rows, and for backward kept or not.
template <class T>
Results<T> run_on_cpu(const Case& given, const Shares& shares, int64_t tile_rows, bool keep,
                      const Scratch& memory) {
  using W = Sum<T>;
  Given<T> all = in_memory<T>(given, memory);
  Results<T>& to = all.results;
  for (W* gradient : to.products.gradients) std::fill(gradient, gradient + given.width * given.width, W(0));
  const int64_t layers = all.block.layers(), rows = given.rows();
  const int64_t size = keep ? KeptRows<W>::size(rows, given.width, layers) : 0;
  const KeptRows<W> kept{keep && rows > 0 ? memory.array<W>(size) : nullptr, rows, given.width, layers};
  HostProducts<W> products{to.products, given.width};
  cpu::residual_kernel(shares, all.block, all.segments, all.x, tile_rows, products, kept, to.out, memory);
  cpu::residual_backward_kernel(shares, all.block, all.segments, all.grad, all.x, tile_rows, products, kept,
                                to.grad_x, to.grads, memory);
  return to;
}

template <class T>
void test_cpu(Random& random) {
  // Less than a chunk of rows whose sums are taken together, one, and several with a rest.
  const int64_t rows = random.of<int64_t>({0, 33, cpu::kRowChunk, cpu::kRowChunk + 1 + random.below(200)});
  const Case given = random_case<T>(random, rows);
  const Scratch memory(random());
  const int64_t tile_rows = random.of<int64_t>({16, 100, 1000, 1000});
  const bool keep = random.below(2);
  const Results<T> results = run_on_cpu<T>(given, {1, false}, tile_rows, keep, memory);
  check(given, results);
  const Shares others{1 + random.below(7), true};
  check_same_bits(given, results, run_on_cpu<T>(given, others, tile_rows, keep, memory));
}

template <class T>
void test_both(Random& random) {
  test_cuda<T>(random);
  for (int left = 4; left > 0; --left) test_cpu<T>(random);
}

// A row of a cluster that does not exist trips the assertion, and is as if it were in none.
void test_bad_cluster(Random& random) {
  Case given = random_case<double>(random, few_rows(random));
  if (given.num_clusters < 0 || given.rows() == 0) return;
  const size_t at = size_t(random.below(given.rows()));
  given.cluster[at] = -1;
  const Expected expected = plain_residual(given);
  given.cluster[at] = random.of<int64_t>({-2, given.num_clusters, INT64_MIN, INT64_MAX});
  const Scratch memory(random());
  const Results<double> results = run<double>(given, random_launcher(random), memory);
  CHECK(record.assertions.size() >= 2);  // forward and backward
  record.assertions.clear();
  CHECK(near(results.out, expected.out));
  CHECK(near(results.grad_x, expected.grad_x));
}

}  // namespace
}  // namespace gpn::test

int main(int argc, char** argv) {
  using namespace gpn::test;
  return for_seeds(argc, argv, 60, [](emulation::Random& random, uint64_t seed) {
    switch (seed / emulation::kPolicies % 4) {
      case 0: test_both<float>(random); break;
      case 1: test_both<double>(random); break;
      case 2: test_both<ThirdDtype>(random); break;
      case 3: test_both<FourthDtype>(random); break;
    }
    test_bad_cluster(random);
  });
}
