// The CUDA kernels of the edge scorer, run by their own launch code on the emulated device: equal to a plain
// solver in float64.
#include <cuda_runtime.h>
//
#include <cmath>

#include "check.h"
#include "cuda/edge_logits.cuh"
#include "device.h"
#include "seeds.h"
#include "values.h"

namespace gpn::test {
namespace {

using emulation::record;

struct Layer {
  Values weight, bias, norm_weight, norm_bias;
};

struct Net {
  std::vector<Layer> hidden;
  Values weight, bias;
};

Net zeros(int64_t layers, int64_t width) {
  const Values row(size_t(width), 0), matrix(size_t(width * width), 0);
  Net net;
  net.hidden.assign(size_t(layers), {matrix, row, row, row});
  net.weight = row;
  net.bias.assign(1, 0);
  return net;
}

struct Case {
  int64_t num_nodes, width;
  std::vector<int64_t> first, second;
  Values h, grad;
  Net net;
  Dropout<double> dropout;
  bool dropping;
  int64_t seed;
};

struct Expected {
  Values out, grad_h;
  Net grads;
  double nearest;  // to 0, of what a ReLU was given
};

double dropout_factor(const Case& given, int64_t layer, int64_t pair, int64_t k) {
  if (!given.dropping) return 1;
  const uint64_t place = (uint64_t(layer) << 48) + uint64_t(pair * given.width + k);
  const uint64_t word = random_word(uint64_t(given.seed), place / 4);
  return given.dropout.factor(uint16_t(word >> (16 * (place % 4))));
}

// One pair at a time.
Expected plain_scorer(const Case& given) {
  const size_t width = size_t(given.width), layers = given.net.hidden.size();
  Expected all{{}, Values(given.h.size(), 0), zeros(int64_t(layers), given.width), 1};
  for (size_t p = 0; p < given.first.size(); ++p) {
    const double* a = given.h.data() + size_t(given.first[p]) * width;
    const double* b = given.h.data() + size_t(given.second[p]) * width;
    std::vector<Values> z{Values(width)}, x;
    Values factor;
    for (size_t k = 0; k < width; ++k) z[0][k] = a[k] * b[k];
    for (size_t l = 0; l < layers; ++l) {
      const Layer& layer = given.net.hidden[l];
      Values rows = layer.bias;
      for (size_t j = 0; j < width; ++j) {
        for (size_t k = 0; k < width; ++k) rows[j] += layer.weight[j * width + k] * z[l][k];
      }
      double mean = 0, variance = 0;
      for (const double value : rows) mean += value / double(width);
      for (const double value : rows) variance += (value - mean) * (value - mean) / double(width);
      factor.push_back(1 / std::sqrt(variance + kLayerNormEps));
      Values out(width);
      for (size_t k = 0; k < width; ++k) {
        rows[k] = (rows[k] - mean) * factor[l];
        const double y = rows[k] * layer.norm_weight[k] + layer.norm_bias[k];
        all.nearest = std::min(all.nearest, std::abs(y));
        out[k] = std::max(y, 0.0) * dropout_factor(given, int64_t(l), int64_t(p), int64_t(k));
      }
      x.push_back(rows);
      z.push_back(out);
    }
    double logit = given.net.bias[0];
    for (size_t k = 0; k < width; ++k) logit += z[layers][k] * given.net.weight[k];
    all.out.push_back(logit);

    const double g = given.grad[p];
    all.grads.bias[0] += g;
    Values grad_z(width);
    for (size_t k = 0; k < width; ++k) {
      all.grads.weight[k] += g * z[layers][k];
      grad_z[k] = g * given.net.weight[k];
    }
    for (size_t l = layers; l-- > 0;) {
      const Layer& layer = given.net.hidden[l];
      Layer& to = all.grads.hidden[l];
      Values grad_x(width), below(width, 0);
      double mean = 0, slope = 0;
      for (size_t k = 0; k < width; ++k) {
        const double y = x[l][k] * layer.norm_weight[k] + layer.norm_bias[k];
        const double grad_y =
            y > 0 ? grad_z[k] * dropout_factor(given, int64_t(l), int64_t(p), int64_t(k)) : 0;
        to.norm_weight[k] += grad_y * x[l][k];
        to.norm_bias[k] += grad_y;
        grad_x[k] = grad_y * layer.norm_weight[k];
        mean += grad_x[k] / double(width);
        slope += grad_x[k] * x[l][k] / double(width);
      }
      for (size_t j = 0; j < width; ++j) {
        const double grad_row = factor[l] * (grad_x[j] - mean - x[l][j] * slope);
        to.bias[j] += grad_row;
        for (size_t k = 0; k < width; ++k) {
          to.weight[j * width + k] += grad_row * z[l][k];
          below[k] += grad_row * layer.weight[j * width + k];
        }
      }
      grad_z = below;
    }
    for (size_t k = 0; k < width; ++k) {
      all.grad_h[size_t(given.first[p]) * width + k] += grad_z[k] * b[k];
      all.grad_h[size_t(given.second[p]) * width + k] += grad_z[k] * a[k];
    }
  }
  return all;
}

template <class W>
struct DeviceNet {
  std::vector<W*> weights;
  std::vector<std::array<W*, 4>> columns;
  W* bias;

  const W* weight(int64_t layer) const { return weights[size_t(layer)]; }
  W* weight_gradient(int64_t layer) const { return weights[size_t(layer)]; }
};

template <class W>
DeviceNet<W> room_for_gradients(const Net& net, int64_t width, const Scratch& memory) {
  DeviceNet<W> out;
  for (size_t l = 0; l < net.hidden.size(); ++l) {
    const bool last = l + 1 == net.hidden.size();
    out.weights.push_back(memory.array<W>(width * width));
    out.columns.push_back({memory.array<W>(width), memory.array<W>(width), memory.array<W>(width),
                           last ? memory.array<W>(width) : nullptr});
  }
  out.bias = memory.array<W>(1);
  return out;
}

// What the kernels read weights from, and write their gradients to.
template <class W>
struct Products {
  std::vector<const W*> weights;
  const DeviceNet<W>* grads;
  const W* weight(int64_t layer) const { return weights[size_t(layer)]; }
  W* weight_gradient(int64_t layer) const { return grads->weight_gradient(layer); }
};

template <class T>
Case random_case(Random& random) {
  Case given;
  given.num_nodes = random.of<int64_t>({1, 3, 9, 40});
  given.width = random.of<int64_t>({1, 2, 5, 8, 17, 33});
  const int64_t count = random.of<int64_t>({0, 1, 7, 33, random.below(90)});
  const int64_t hub = random.below(given.num_nodes), kind = random.below(4);
  for (int64_t p = 0; p < count; ++p) {
    given.first.push_back(kind == 1 ? hub : random.below(given.num_nodes));
    given.second.push_back(kind == 2 ? hub : random.below(given.num_nodes));
  }
  const int64_t layers = 1 + random.below(3);
  given.h = random_values<T>(random, given.num_nodes * given.width);
  using W = Sum<T>;
  given.grad = random_values<W>(random, count);
  for (int64_t l = 0; l < layers; ++l) {
    given.net.hidden.push_back({random_values<W>(random, given.width * given.width),
                                random_values<W>(random, given.width), random_values<W>(random, given.width),
                                random_values<W>(random, given.width)});
  }
  given.net.weight = random_values<W>(random, given.width);
  given.net.bias = random_values<W>(random, 1);
  given.dropping = random.below(2);
  given.dropout = {20000, double(W(1.44)), true};
  given.seed = int64_t(random() >> 1);
  return given;
}

// All that is computed of a case, one after the other.
template <class T>
struct Results {
  Sum<T>* out;
  T* grad_h;
  DeviceNet<Sum<T>> grads;
};

template <class T>
Results<T> run(const Case& given, const Launcher& launch, const Scratch& memory) {
  using W = Sum<T>;
  const int64_t count = int64_t(given.first.size()), width = given.width;
  Scorer<W> scorer{};
  Products<W> products;
  for (const Layer& layer : given.net.hidden) {
    scorer.hidden.push_back({on_device<W>(layer.bias, memory), on_device<W>(layer.norm_weight, memory),
                             on_device<W>(layer.norm_bias, memory)});
    products.weights.push_back(on_device<W>(layer.weight, memory));
  }
  scorer.weight = on_device<W>(given.net.weight, memory);
  scorer.bias = on_device<W>(given.net.bias, memory);
  scorer.width = width;
  scorer.dropout = {given.dropout.dropped, W(given.dropout.scale), true};
  scorer.seed = given.dropping ? memory.copy(std::vector<int64_t>{given.seed}) : nullptr;
  const Pairs pairs{memory.copy(given.first), memory.copy(given.second), count, given.num_nodes};
  Results<T> results{memory.array<W>(count), memory.array<T>(given.num_nodes * width),
                     room_for_gradients<W>(given.net, width, memory)};
  products.grads = &results.grads;
  const T* h = on_device<T>(given.h, memory);
  cuda::edge_logits_kernel(launch, scorer, h, pairs, 1, products, results.out, memory);
  cuda::edge_logits_backward_kernel(launch, scorer, on_device<W>(given.grad, memory), h, pairs, 1, products,
                                    results.grad_h, results.grads.columns, results.grads.bias, memory);
  return results;
}

// Leaves NaN in the shared memory, which no kernel may take for zeros.
template <class T>
void poison() {
  const int64_t width = 40, count = 32;
  const Values row(size_t(width), 1), matrix(size_t(width * width), 1);
  const Layer layer{matrix, row, row, row};
  const std::vector<int64_t> nodes(size_t(count), 0);
  const Values nan(size_t(width), std::nan("")), grad(size_t(count), 1);
  const Scratch memory;
  run<T>({1, width, nodes, nodes, nan, grad, {{layer, layer}, row, {0}}, {}, false, 0}, {nullptr}, memory);
}

template <class T>
void test_scorer(Random& random) {
  using W = Sum<T>;
  const Case given = random_case<T>(random);
  const Scratch memory(random());
  if (random.below(2)) poison<T>();
  const Launcher launch = random_launcher(random);
  const Results<T> results = run<T>(given, launch, memory);
  CHECK(record.assertions.empty());
  const Expected expected = plain_scorer(given);
  CHECK(near(results.out, expected.out));
  // float32 cannot always tell on which side of 0 such a value is.
  if (sizeof(W) == 8 || expected.nearest > 1e-4) {
    CHECK(near(results.grad_h, expected.grad_h));
    for (size_t l = 0; l < given.net.hidden.size(); ++l) {
      const Layer& layer = expected.grads.hidden[l];
      const std::array<W*, 4>& columns = results.grads.columns[l];
      CHECK(near(results.grads.weights[l], layer.weight));
      CHECK(near(columns[0], layer.bias));
      CHECK(near(columns[1], layer.norm_weight));
      CHECK(near(columns[2], layer.norm_bias));
    }
    CHECK(near(results.grads.columns.back()[3], expected.grads.weight));
    CHECK(near(results.grads.bias, expected.grads.bias));
  }
  // Another schedule, the same bits.
  ++emulation::settings.seed;
  const Results<T> again = run<T>(given, launch, memory);
  CHECK(same_bits(results.out, again.out, int64_t(given.first.size())));
  CHECK(same_bits(results.grad_h, again.grad_h, given.num_nodes * given.width));
  for (size_t l = 0; l < given.net.hidden.size(); ++l) {
    CHECK(same_bits(results.grads.weights[l], again.grads.weights[l], given.width * given.width));
  }
}

// A pair of a node that does not exist trips the assertion, and is as if it were not there.
void test_bad_pairs(Random& random) {
  Case given = random_case<double>(random);
  given.dropping = false;  // draws go by the place of a pair
  const int64_t bad = random.of<int64_t>({-1, given.num_nodes, INT64_MIN, INT64_MAX});
  const Expected expected = plain_scorer(given);
  const int64_t at = random.below(int64_t(given.first.size()) + 1);
  given.first.insert(given.first.begin() + at, random.below(2) ? bad : 0);
  given.second.insert(given.second.begin() + at, given.first[size_t(at)] == 0 ? bad : 0);
  given.grad.insert(given.grad.begin() + at, 1.0);
  const Scratch memory(random());
  const Results<double> results = run<double>(given, random_launcher(random), memory);
  CHECK(!record.assertions.empty());
  record.assertions.clear();
  CHECK(near(results.grad_h, expected.grad_h));
  CHECK(near(results.grads.weights[0], expected.grads.hidden[0].weight));
}

}  // namespace
}  // namespace gpn::test

int main(int argc, char** argv) {
  using namespace gpn::test;
  return for_seeds(argc, argv, 60, [](emulation::Random& random, uint64_t seed) {
    switch (seed / emulation::kPolicies % 4) {
      case 0: test_scorer<float>(random); break;
      case 1: test_scorer<double>(random); break;
      case 2: test_scorer<ThirdDtype>(random); break;
      case 3: test_scorer<FourthDtype>(random); break;
    }
    test_bad_pairs(random);
  });
}
