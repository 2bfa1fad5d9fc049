// gpn::pair_dot, a weighted inner product of the features of two nodes.
#pragma once

#include "host.h"

namespace gpn {

inline void check_pair_dot(const Tensor& h, const Tensor& weight, const Tensor& pairs) {
  check_pairs(h, pairs);
  check_floating("weight", weight);
  check_dtype("weight", weight, h.scalar_type());
  check_shape("weight", weight, {{"channels", h.size(1)}});
  check_device("weight", weight, "h", h);
}

template <class Device>
Tensor pair_dot(const Tensor& given_h, const Tensor& given_weight, const Tensor& given_pairs) {
  check_pair_dot(given_h, given_weight, given_pairs);
  const Device device(given_h);
  const Tensor h = contiguous(given_h), weight = contiguous(given_weight), pairs = readable(given_pairs);
  const Tensor out = new_rows<Device>(weight, pairs.size(1));
  GPN_DISPATCH(h, "gpn::pair_dot", [&] {
    pair_dot_kernel(device.run, pairs_of(pairs, h.size(0)), h.const_data_ptr<scalar_t>(),
                    weight.const_data_ptr<scalar_t>(), h.size(1), out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

template <class Device>
std::tuple<Tensor, Tensor> pair_dot_backward(const Tensor& given_grad, const Tensor& given_h,
                                             const Tensor& given_weight, const Tensor& given_pairs) {
  check_pair_dot(given_h, given_weight, given_pairs);
  check_dtype("grad", given_grad, given_h.scalar_type());
  check_shape("grad", given_grad, {{"num_pairs", given_pairs.size(1)}});
  check_device("grad", given_grad, "h", given_h);
  const Device device(given_h);
  const Tensor grad = contiguous(given_grad), h = contiguous(given_h), weight = contiguous(given_weight),
               pairs = readable(given_pairs);
  const Tensor grad_h = new_rows<Device>(h, h.size(0)), grad_weight = new_rows<Device>(weight, h.size(1));
  GPN_DISPATCH(h, "gpn::pair_dot_backward", [&] {
    pair_dot_backward_kernel(device.run, pairs_of(pairs, h.size(0)), grad.const_data_ptr<scalar_t>(),
                             h.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(), h.size(1),
                             grad_h.mutable_data_ptr<scalar_t>(), grad_weight.mutable_data_ptr<scalar_t>(),
                             Scratch<Device>(h));
  });
  return {grad_h, grad_weight};
}

}  // namespace gpn
