// gpn::pair_dot and gpn::pair_product for CUDA tensors: checks, dtype dispatch, memory, device and stream
// around pairs.cuh.
#include <torch/csrc/stable/library.h>

#include "pairs.cuh"
#include "torch_device.h"

namespace gpn::cuda {
namespace {

using torch::stable::contiguous;

Pairs pairs_of(const Tensor& readable_pairs, const Tensor& h) {
  return {row_of(readable_pairs), col_of(readable_pairs), readable_pairs.size(1), h.size(0)};
}

Tensor pair_dot_cuda(const Tensor& given_h, const Tensor& given_weight, const Tensor& given_pairs) {
  check_pair_dot(given_h, given_weight, given_pairs);
  const OnDevice device(given_h);
  const Tensor h = contiguous(given_h), weight = contiguous(given_weight), ends = readable(given_pairs);
  const Tensor out = empty_like_on(h, ends.size(1), h.scalar_type());
  GPN_DISPATCH(h, "gpn::pair_dot", [&] {
    device.launch(pair_dot<scalar_t>, out.numel() * kWarp, pairs_of(ends, h), h.const_data_ptr<scalar_t>(),
                  weight.const_data_ptr<scalar_t>(), h.size(1), out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

std::tuple<Tensor, Tensor> pair_dot_backward_cuda(const Tensor& given_grad, const Tensor& given_h,
                                                  const Tensor& given_weight, const Tensor& given_pairs) {
  check_pair_dot(given_h, given_weight, given_pairs);
  check_dtype("grad", given_grad, given_h.scalar_type());
  check_shape("grad", given_grad, {{"num_pairs", given_pairs.size(1)}});
  const OnDevice device(given_h);
  const Tensor grad = contiguous(given_grad), h = contiguous(given_h), weight = contiguous(given_weight);
  const Tensor ends = readable(given_pairs);
  const Tensor grad_h = torch::stable::empty_like(h), grad_weight = torch::stable::empty_like(weight);
  const Pairs pairs = pairs_of(ends, h);
  const int64_t width = h.size(1);
  with_index(std::max(2 * pairs.count, pairs.num_nodes), [&](auto index) {
    GPN_DISPATCH(h, "gpn::pair_dot_backward", [&] {
      pair_dot_backward<decltype(index)>(device.launch, pairs, grad.const_data_ptr<scalar_t>(),
                                         h.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(),
                                         width, grad_h.mutable_data_ptr<scalar_t>(),
                                         grad_weight.mutable_data_ptr<scalar_t>(), Scratch(h));
    });
  });
  return {grad_h, grad_weight};
}

Tensor pair_product_cuda(const Tensor& given_h, const Tensor& given_pairs) {
  check_pairs(given_h, given_pairs);
  const OnDevice device(given_h);
  const Tensor h = contiguous(given_h), ends = readable(given_pairs);
  const Tensor out = torch::stable::new_empty(h, {ends.size(1), h.size(1)});
  GPN_DISPATCH(h, "gpn::pair_product", [&] {
    device.launch(pair_product<scalar_t>, out.numel(), pairs_of(ends, h), h.const_data_ptr<scalar_t>(),
                  h.size(1), out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

void pair_product_backward_cuda(Tensor grad_h, const Tensor& given_grad, const Tensor& given_h,
                                const Tensor& given_pairs) {
  check_product_backward(grad_h, given_grad, given_h, given_pairs);
  const OnDevice device(given_h);
  const Tensor grad = contiguous(given_grad), h = contiguous(given_h), ends = readable(given_pairs);
  const Pairs pairs = pairs_of(ends, h);
  const int64_t width = h.size(1);
  with_index(std::max(2 * pairs.count, pairs.num_nodes), [&](auto index) {
    GPN_DISPATCH(h, "gpn::pair_product_backward_", [&] {
      pair_product_backward<decltype(index)>(device.launch, pairs, grad.const_data_ptr<scalar_t>(),
                                             h.const_data_ptr<scalar_t>(), width,
                                             grad_h.mutable_data_ptr<Sum<scalar_t>>(), Scratch(h));
    });
  });
}

}  // namespace
}  // namespace gpn::cuda

STABLE_TORCH_LIBRARY_IMPL(gpn, CUDA, m) {
  m.impl("pair_dot", TORCH_BOX(&gpn::cuda::pair_dot_cuda));
  m.impl("pair_dot_backward", TORCH_BOX(&gpn::cuda::pair_dot_backward_cuda));
  m.impl("pair_product", TORCH_BOX(&gpn::cuda::pair_product_cuda));
  m.impl("pair_product_backward_", TORCH_BOX(&gpn::cuda::pair_product_backward_cuda));
}
