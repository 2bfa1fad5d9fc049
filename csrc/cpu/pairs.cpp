// gpn::pair_dot and gpn::pair_product for CPU tensors: checks, dtype dispatch and memory around pairs.h.
#include "pairs.h"

#include <torch/csrc/stable/library.h>

#include "../pooling_checks.h"
#include "torch_threads.h"

namespace gpn::cpu {
namespace {

using torch::stable::contiguous;

Pairs checked_pairs(const Tensor& readable_pairs, int64_t num_nodes) {
  const Pairs pairs{row_of(readable_pairs), col_of(readable_pairs), readable_pairs.size(1)};
  const TorchThreads parallel;
  if (!all_fit(parallel, pairs.first, pairs.count, 0, num_nodes) ||
      !all_fit(parallel, pairs.second, pairs.count, 0, num_nodes)) {
    report_bad_ends("pairs", pairs.first, pairs.second, pairs.count, num_nodes);
  }
  return pairs;
}

Tensor pair_dot_cpu(const Tensor& given_h, const Tensor& given_weight, const Tensor& given_pairs) {
  check_pair_dot(given_h, given_weight, given_pairs);
  const Tensor h = contiguous(given_h), weight = contiguous(given_weight), ends = readable(given_pairs);
  const Pairs pairs = checked_pairs(ends, h.size(0));
  const Tensor out = new_tensor(h, {pairs.count}, h.scalar_type());
  GPN_DISPATCH(h, "gpn::pair_dot", [&] {
    pair_dot(TorchThreads(), h.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(), pairs,
             h.size(1), out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

std::tuple<Tensor, Tensor> pair_dot_backward_cpu(const Tensor& given_grad, const Tensor& given_h,
                                                 const Tensor& given_weight, const Tensor& given_pairs) {
  check_pair_dot(given_h, given_weight, given_pairs);
  check_dtype("grad", given_grad, given_h.scalar_type());
  check_shape("grad", given_grad, {{"num_pairs", given_pairs.size(1)}});
  const Tensor grad = contiguous(given_grad), h = contiguous(given_h), weight = contiguous(given_weight);
  const Tensor ends = readable(given_pairs);
  const Pairs pairs = checked_pairs(ends, h.size(0));
  const int64_t width = h.size(1);
  const Tensor grad_h = new_tensor(h, {h.size(0), width}, h.scalar_type()),
               grad_weight = new_tensor(weight, {width}, h.scalar_type());
  const Scratch scratch(h);
  GPN_DISPATCH(h, "gpn::pair_dot_backward", [&] {
    const TorchThreads parallel;
    const scalar_t* g = grad.const_data_ptr<scalar_t>();
    const scalar_t* w = weight.const_data_ptr<scalar_t>();
    Sum<scalar_t>* sums = room_for_sums<scalar_t>(grad_h, scratch);
    clear(parallel, sums, h.numel());
    add_both_ends(
        parallel, h.const_data_ptr<scalar_t>(), pairs, h.size(0), width,
        [=](int64_t p, int64_t k) { return Sum<scalar_t>(g[p]) * Sum<scalar_t>(w[k]); }, sums);
    finish_sums(parallel, sums, nullptr, h.size(0), width, grad_h.mutable_data_ptr<scalar_t>());
    pair_dot_weight_backward(parallel, g, h.const_data_ptr<scalar_t>(), pairs, width,
                             grad_weight.mutable_data_ptr<scalar_t>());
  });
  return {grad_h, grad_weight};
}

Tensor pair_product_cpu(const Tensor& given_h, const Tensor& given_pairs) {
  check_pairs(given_h, given_pairs);
  const Tensor h = contiguous(given_h), ends = readable(given_pairs);
  const Pairs pairs = checked_pairs(ends, h.size(0));
  const Tensor out = new_tensor(h, {pairs.count, h.size(1)}, h.scalar_type());
  GPN_DISPATCH(h, "gpn::pair_product", [&] {
    pair_product(TorchThreads(), h.const_data_ptr<scalar_t>(), pairs, h.size(1),
                 out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

void pair_product_backward_cpu(Tensor grad_h, const Tensor& given_grad, const Tensor& given_h,
                               const Tensor& given_pairs) {
  check_product_backward(grad_h, given_grad, given_h, given_pairs);
  const Tensor grad = contiguous(given_grad), h = contiguous(given_h), ends = readable(given_pairs);
  const Pairs pairs = checked_pairs(ends, h.size(0));
  const int64_t width = h.size(1);
  GPN_DISPATCH(h, "gpn::pair_product_backward_", [&] {
    const scalar_t* g = grad.const_data_ptr<scalar_t>();
    add_both_ends(
        TorchThreads(), h.const_data_ptr<scalar_t>(), pairs, h.size(0), width,
        [=](int64_t p, int64_t k) { return Sum<scalar_t>(g[p * width + k]); },
        grad_h.mutable_data_ptr<Sum<scalar_t>>());
  });
}

}  // namespace
}  // namespace gpn::cpu

STABLE_TORCH_LIBRARY_IMPL(gpn, CPU, m) {
  m.impl("pair_dot", TORCH_BOX(&gpn::cpu::pair_dot_cpu));
  m.impl("pair_dot_backward", TORCH_BOX(&gpn::cpu::pair_dot_backward_cpu));
  m.impl("pair_product", TORCH_BOX(&gpn::cpu::pair_product_cpu));
  m.impl("pair_product_backward_", TORCH_BOX(&gpn::cpu::pair_product_backward_cpu));
}
