// gpn::residual, LayerNorm(x + MLP(x)) of every row, or its sums over clusters.
#pragma once

#include "../core/residual.h"
#include "dropout.h"
#include "host.h"

namespace gpn {

inline void check_residual(const Tensor& x, const std::optional<Tensor>& cluster,
                           const std::vector<Tensor>& parameters, double dropout,
                           const std::optional<Tensor>& seed, int64_t tile_rows) {
  check_floating("x", x);
  check_shape("x", x, {{"num_nodes"}, {"channels"}});
  if (cluster) check_x_and_cluster(x, *cluster);
  const size_t count = parameters.size();
  if (count < 4 || count % 2 != 0) {
    fail("parameters: expected weight and bias of every Linear, then those of the LayerNorm, got ", count,
         " tensors");
  }
  const int64_t channels = x.size(1);
  for (size_t i = 0; i < count; ++i) {
    const std::string name = "parameters[" + std::to_string(i) + "]";
    check_floating(name.c_str(), parameters[i]);
    if (i % 2 == 0 && i + 2 < count) {
      check_shape(name.c_str(), parameters[i], {{"channels", channels}, {"channels", channels}});
    } else {
      check_shape(name.c_str(), parameters[i], {{"channels", channels}});
    }
    check_device(name.c_str(), parameters[i], "x", x);
  }
  if (!(dropout >= 0 && dropout <= 1)) fail("dropout: expected a probability, got ", dropout);
  if (seed) check_seed(*seed, "x", x);
  if (tile_rows < 1) fail("tile_rows: expected a positive integer, got ", tile_rows);
}

// The parameters, in the types that they are used in.
class ResidualTensors {
 public:
  ResidualTensors(const Tensor& x, const std::vector<Tensor>& parameters, ScalarType product) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool is_weight = i % 2 == 0 && i + 2 < parameters.size();
      (is_weight ? weights : others_).push_back(as(parameters[i], is_weight ? product : sum_type(x)));
    }
  }

  template <class W>
  Residual<W> on_pointers(double dropout, const std::optional<Tensor>& seed) const {
    std::vector<const W*> pointers;
    for (const Tensor& tensor : others_) pointers.push_back(tensor.const_data_ptr<W>());
    Residual<W> block{};
    block.bias.assign(pointers.begin(), pointers.end() - 2);
    block.norm_weight = pointers.end()[-2];
    block.norm_bias = pointers.end()[-1];
    block.width = weights.front().size(0);
    block.dropout = dropout_of<W>(dropout, true);
    block.seed = seed ? seed->const_data_ptr<int64_t>() : nullptr;
    return block;
  }

  static Tensor as(const Tensor& tensor, ScalarType type) {
    return contiguous(tensor.scalar_type() == type ? tensor : torch::stable::to(tensor, type));
  }

  std::vector<Tensor> weights;

 private:
  std::vector<Tensor> others_;
};

// Without clusters, each row is one of the results: there are -1 then, as an empty tensor may be at null.
inline Segments<> segments_of(const std::optional<Tensor>& contiguous_cluster, const Tensor& x,
                              int64_t num_clusters) {
  const int64_t* cluster = contiguous_cluster ? contiguous_cluster->const_data_ptr<int64_t>() : nullptr;
  return {cluster, x.size(0), x.size(1), contiguous_cluster ? num_clusters : -1};
}

template <class W>
KeptRows<W> kept_rows(W* memory, const Tensor& x, const Residual<W>& block) {
  return {memory, x.size(0), block.width, block.layers()};
}

template <class Device>
std::tuple<Tensor, Tensor> residual(const Tensor& given_x, const std::optional<Tensor>& given_cluster,
                                    int64_t num_clusters, const std::vector<Tensor>& parameters,
                                    ScalarType product, double dropout, const std::optional<Tensor>& seed,
                                    int64_t tile_rows, bool keep) {
  check_residual(given_x, given_cluster, parameters, dropout, seed, tile_rows);
  check_count("num_clusters", num_clusters);
  const Device device(given_x);
  const Tensor x = contiguous(given_x);
  const std::optional<Tensor> cluster =
      given_cluster ? std::optional(contiguous(*given_cluster)) : std::nullopt;
  const ResidualTensors tensors(x, parameters, product);
  const int64_t layers = int64_t(tensors.weights.size());
  const bool keeps = keep && Device::kKeeps;
  const Tensor out = new_rows<Device>(x, cluster ? num_clusters : x.size(0));
  const Tensor kept =
      Device::new_tensor(x, {keeps ? KeptRows<float>::size(x.size(0), x.size(1), layers) : 0}, sum_type(x));
  GPN_DISPATCH(x, "gpn::residual", [&] {
    using W = Sum<scalar_t>;
    const Residual<W> block = tensors.on_pointers<W>(dropout, seed);
    const std::vector<Tensor> no_grads;
    typename Device::template Products<W> products(tensors.weights, no_grads, product);
    residual_kernel(device.run, block, segments_of(cluster, x, num_clusters), x.const_data_ptr<scalar_t>(),
                    tile_rows, products, kept_rows(keeps ? kept.mutable_data_ptr<W>() : nullptr, x, block),
                    out.mutable_data_ptr<scalar_t>(), Scratch<Device>(x));
  });
  return {out, kept};
}

template <class Device>
std::vector<Tensor> residual_backward(const Tensor& given_grad, const Tensor& given_x,
                                      const std::optional<Tensor>& given_cluster,
                                      const std::vector<Tensor>& parameters, ScalarType product,
                                      double dropout, const std::optional<Tensor>& seed, int64_t tile_rows,
                                      const Tensor& given_kept) {
  check_residual(given_x, given_cluster, parameters, dropout, seed, tile_rows);
  check_floating("grad", given_grad);
  check_shape("grad", given_grad, {{"num_clusters"}, {"channels", given_x.size(1)}});
  check_rows("grad", given_grad, given_x, given_cluster ? given_grad.size(0) : given_x.size(0));
  check_dtype("kept", given_kept, sum_type(given_x));
  const ResidualTensors tensors(given_x, parameters, product);
  const int64_t layers = int64_t(tensors.weights.size()), num_clusters = given_grad.size(0);
  const bool keeps = given_kept.numel() > 0;
  check_shape("kept", given_kept,
              {{"size", keeps ? KeptRows<float>::size(given_x.size(0), given_x.size(1), layers) : 0}});
  check_device("kept", given_kept, "x", given_x);
  const Device device(given_x);
  const Tensor grad = contiguous(given_grad), x = contiguous(given_x), kept = contiguous(given_kept);
  const std::optional<Tensor> cluster =
      given_cluster ? std::optional(contiguous(*given_cluster)) : std::nullopt;
  std::vector<Tensor> results{new_rows<Device>(x, x.size(0))};
  for (const Tensor& parameter : parameters) {
    std::vector<int64_t> shape;
    for (int64_t d = 0; d < parameter.dim(); ++d) shape.push_back(parameter.size(d));
    results.push_back(Device::new_tensor(x, shape, sum_type(x)));
  }
  std::vector<Tensor> weight_grads;
  for (int64_t l = 0; l < layers; ++l) weight_grads.push_back(results[size_t(1 + 2 * l)]);
  GPN_DISPATCH(x, "gpn::residual_backward", [&] {
    using W = Sum<scalar_t>;
    const auto pointer = [&](int64_t i) { return results[size_t(1 + i)].mutable_data_ptr<W>(); };
    ResidualGradients<W> grads{};
    for (int64_t l = 0; l < layers; ++l) grads.bias.push_back(pointer(2 * l + 1));
    grads.norm_weight = pointer(2 * layers);
    grads.norm_bias = pointer(2 * layers + 1);
    const Residual<W> block = tensors.on_pointers<W>(dropout, seed);
    typename Device::template Products<W> products(tensors.weights, weight_grads, product);
    // Only read there.
    W* memory = keeps ? const_cast<W*>(kept.const_data_ptr<W>()) : nullptr;
    residual_backward_kernel(device.run, block, segments_of(cluster, x, num_clusters),
                             grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(), tile_rows,
                             products, kept_rows(memory, x, block), results[0].mutable_data_ptr<scalar_t>(),
                             grads, Scratch<Device>(x));
  });
  for (size_t i = 0; i < parameters.size(); ++i) {
    results[1 + i] = ResidualTensors::as(results[1 + i], parameters[i].scalar_type());
  }
  return results;
}

}  // namespace gpn
