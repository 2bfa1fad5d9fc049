// The CUDA kernels of DeepSets' blocks, run by their own launch code on the emulated device: equal to a plain
// solver in float64.
#include <cuda_runtime.h>
//
#include "check.h"
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

template <class T>
Case random_case(Random& random) {
  Case given;
  using W = Sum<T>;
  given.width = random.of<int64_t>({1, 2, 5, 8, 17, 33});
  const int64_t rows = random.of<int64_t>({0, 1, 7, 33, random.below(90)});
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

template <class T>
Results<T> run(const Case& given, const Launcher& launch, const Scratch& memory) {
  using W = Sum<T>;
  const int64_t width = given.width;
  Residual<W> block{};
  Results<T> results{};
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
  const Segments<> segments{cluster, given.rows(), width, given.num_clusters};
  const T* x = on_device<T>(given.x, memory);
  results.out = memory.array<T>(given.results() * width);
  results.grad_x = memory.array<T>(given.rows() * width);
  cuda::residual_kernel(launch, block, segments, x, 1, results.products, {}, results.out, memory);
  cuda::residual_backward_kernel(launch, block, segments, on_device<T>(given.grad, memory), x, 1,
                                 results.products, {}, results.grad_x, results.grads, memory);
  return results;
}

// Leaves NaN in the shared memory, which no kernel may take for zeros.
template <class T>
void poison() {
  const Values nan(40, std::nan("")), matrix(40 * 40, 1);
  const Scratch memory;
  run<T>({40, 1, {0}, nan, nan, {{{matrix, nan}, {matrix, nan}}, nan, nan}, {}, false, 0}, {nullptr}, memory);
}

template <class T>
void test_residual(Random& random) {
  using W = Sum<T>;
  const Case given = random_case<T>(random);
  const Scratch memory(random());
  if (random.below(2)) poison<T>();
  const Launcher launch = random_launcher(random);
  const Results<T> results = run<T>(given, launch, memory);
  CHECK(record.assertions.empty());
  const Expected expected = plain_residual(given);
  CHECK(near(results.out, expected.out));
  // float32 cannot always tell on which side of 0 such a value is; one that is alone in its row has no
  // variance.
  if (given.width > 1 && (sizeof(W) == 8 || expected.nearest > 1e-4)) {
    CHECK(near(results.grad_x, expected.grad_x));
    for (size_t l = 0; l < given.net.linears.size(); ++l) {
      CHECK(near(results.products.gradients[l], expected.grads.linears[l].weight));
      CHECK(near(results.grads.bias[l], expected.grads.linears[l].bias));
    }
    CHECK(near(results.grads.norm_weight, expected.grads.norm_weight));
    CHECK(near(results.grads.norm_bias, expected.grads.norm_bias));
  }
  // Another schedule, the same bits.
  ++emulation::settings.seed;
  const Results<T> again = run<T>(given, launch, memory);
  CHECK(same_bits(results.out, again.out, int64_t(expected.out.size())));
  CHECK(same_bits(results.grad_x, again.grad_x, int64_t(expected.grad_x.size())));
  for (size_t l = 0; l < given.net.linears.size(); ++l) {
    CHECK(same_bits(results.products.gradients[l], again.products.gradients[l], given.width * given.width));
    CHECK(same_bits(results.grads.bias[l], again.grads.bias[l], given.width));
  }
}

// A row of a cluster that does not exist trips the assertion, and is as if it were in none.
void test_bad_cluster(Random& random) {
  Case given = random_case<double>(random);
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
      case 0: test_residual<float>(random); break;
      case 1: test_residual<double>(random); break;
      case 2: test_residual<ThirdDtype>(random); break;
      case 3: test_residual<FourthDtype>(random); break;
    }
    test_bad_cluster(random);
  });
}
