// gpn::edge_logits, what an edge scorer of several layers gives before its sigmoid.
#pragma once

#include "../core/scorer.h"
#include "dropout.h"
#include "host.h"

namespace gpn {

// Of a hidden layer: weight, bias, and both of its LayerNorm.
constexpr size_t kHiddenParameters = 4;

inline void check_edge_logits(const Tensor& h, const Tensor& pairs, const std::vector<Tensor>& parameters,
                              double dropout, const std::optional<Tensor>& seed, int64_t tile_rows) {
  check_pairs(h, pairs);
  const size_t count = parameters.size();
  if (count < kHiddenParameters + 2 || count % kHiddenParameters != 2) {
    fail(
        "parameters: expected weight, bias, norm weight and norm bias of every hidden layer, then weight "
        "and bias of the last, got ",
        count, " tensors");
  }
  const int64_t channels = h.size(1);
  for (size_t i = 0; i < count; ++i) {
    const std::string name = "parameters[" + std::to_string(i) + "]";
    check_floating(name.c_str(), parameters[i]);
    if (i + 2 == count) {
      check_shape(name.c_str(), parameters[i], {{"1", 1}, {"channels", channels}});
    } else if (i + 1 == count) {
      check_shape(name.c_str(), parameters[i], {{"1", 1}});
    } else if (i % kHiddenParameters == 0) {
      check_shape(name.c_str(), parameters[i], {{"channels", channels}, {"channels", channels}});
    } else {
      check_shape(name.c_str(), parameters[i], {{"channels", channels}});
    }
    check_device(name.c_str(), parameters[i], "h", h);
  }
  if (!(dropout >= 0 && dropout <= 1)) fail("dropout: expected a probability, got ", dropout);
  if (seed) check_seed(*seed, "h", h);
  if (tile_rows < 1) fail("tile_rows: expected a positive integer, got ", tile_rows);
}

// The parameters, in the types that they are used in.
class ScorerTensors {
 public:
  ScorerTensors(const Tensor& h, const std::vector<Tensor>& parameters, ScalarType product)
      : wide_(sum_type(h)) {
    // The product of two features may be past the range of float16.
    type_ = product == ScalarType::Half ? wide_ : product;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool is_weight = i % kHiddenParameters == 0 && i + 2 < parameters.size();
      (is_weight ? weights : others_).push_back(as(parameters[i], is_weight ? type_ : wide_));
    }
  }

  template <class W>
  Scorer<W> on_pointers(double dropout, const std::optional<Tensor>& seed) const {
    const auto pointer = [&](size_t i) { return others_[i].const_data_ptr<W>(); };
    Scorer<W> scorer{};
    for (size_t l = 0; l < weights.size(); ++l) {
      scorer.hidden.push_back({pointer(3 * l), pointer(3 * l + 1), pointer(3 * l + 2)});
    }
    scorer.weight = pointer(others_.size() - 2);
    scorer.bias = pointer(others_.size() - 1);
    scorer.width = weights.front().size(0);
    scorer.dropout = dropout_of<W>(dropout, true);
    scorer.seed = seed ? seed->const_data_ptr<int64_t>() : nullptr;
    return scorer;
  }

  static Tensor as(const Tensor& tensor, ScalarType type) {
    return contiguous(tensor.scalar_type() == type ? tensor : torch::stable::to(tensor, type));
  }

  ScalarType type() const { return type_; }
  ScalarType wide() const { return wide_; }
  std::vector<Tensor> weights;  // of the hidden layers

 private:
  std::vector<Tensor> others_;
  ScalarType wide_, type_;
};

template <class Device>
Tensor edge_logits(const Tensor& given_h, const Tensor& given_pairs, const std::vector<Tensor>& parameters,
                   ScalarType product, double dropout, const std::optional<Tensor>& seed, int64_t tile_rows) {
  check_edge_logits(given_h, given_pairs, parameters, dropout, seed, tile_rows);
  const Device device(given_h);
  const Tensor h = contiguous(given_h), pairs = readable(given_pairs);
  const ScorerTensors tensors(h, parameters, product);
  const Tensor out = Device::new_tensor(h, {pairs.size(1)}, tensors.wide());
  GPN_DISPATCH(h, "gpn::edge_logits", [&] {
    using W = Sum<scalar_t>;
    const std::vector<Tensor> no_grads;
    typename Device::template Products<W> products(tensors.weights, no_grads, tensors.type());
    edge_logits_kernel(device.run, tensors.on_pointers<W>(dropout, seed), h.const_data_ptr<scalar_t>(),
                       pairs_of(pairs, h.size(0)), tile_rows, products, out.mutable_data_ptr<W>(),
                       Scratch<Device>(h));
  });
  return out;
}

template <class Device>
std::vector<Tensor> edge_logits_backward(const Tensor& given_grad, const Tensor& given_h,
                                         const Tensor& given_pairs, const std::vector<Tensor>& parameters,
                                         ScalarType product, double dropout,
                                         const std::optional<Tensor>& seed, int64_t tile_rows) {
  check_edge_logits(given_h, given_pairs, parameters, dropout, seed, tile_rows);
  check_dtype("grad", given_grad, sum_type(given_h));
  check_shape("grad", given_grad, {{"num_pairs", given_pairs.size(1)}});
  check_device("grad", given_grad, "h", given_h);
  const Device device(given_h);
  const Tensor grad = contiguous(given_grad), h = contiguous(given_h), pairs = readable(given_pairs);
  const ScorerTensors tensors(h, parameters, product);
  std::vector<Tensor> results{new_rows<Device>(h, h.size(0))};
  std::vector<Tensor> weight_grads;
  for (const Tensor& parameter : parameters) {
    std::vector<int64_t> shape;
    for (int64_t d = 0; d < parameter.dim(); ++d) shape.push_back(parameter.size(d));
    results.push_back(Device::new_tensor(h, shape, tensors.wide()));
  }
  for (size_t l = 0; l < tensors.weights.size(); ++l)
    weight_grads.push_back(results[1 + kHiddenParameters * l]);
  GPN_DISPATCH(h, "gpn::edge_logits_backward", [&] {
    using W = Sum<scalar_t>;
    const auto pointer = [&](size_t i) { return results[1 + i].mutable_data_ptr<W>(); };
    std::vector<ColumnGradients<W>> grads;
    for (size_t l = 0; l < tensors.weights.size(); ++l) {
      const size_t at = kHiddenParameters * l;
      const bool is_last = l + 1 == tensors.weights.size();
      grads.push_back(
          {pointer(at + 1), pointer(at + 2), pointer(at + 3), is_last ? pointer(at + 4) : nullptr});
    }
    typename Device::template Products<W> products(tensors.weights, weight_grads, tensors.type());
    edge_logits_backward_kernel(device.run, tensors.on_pointers<W>(dropout, seed), grad.const_data_ptr<W>(),
                                h.const_data_ptr<scalar_t>(), pairs_of(pairs, h.size(0)), tile_rows, products,
                                results[0].mutable_data_ptr<scalar_t>(), grads,
                                pointer(parameters.size() - 1), Scratch<Device>(h));
  });
  for (size_t i = 0; i < parameters.size(); ++i) {
    results[1 + i] = ScorerTensors::as(results[1 + i], parameters[i].scalar_type());
  }
  return results;
}

}  // namespace gpn
