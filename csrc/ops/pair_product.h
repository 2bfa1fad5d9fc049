// gpn::pair_product, the product of the features of two nodes.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
Tensor pair_product(const Tensor& given_h, const Tensor& given_pairs) {
  check_pairs(given_h, given_pairs);
  const Device device(given_h);
  const Tensor h = contiguous(given_h), pairs = readable(given_pairs);
  const Tensor out = new_rows<Device>(h, pairs.size(1));
  GPN_DISPATCH(h, "gpn::pair_product", [&] {
    pair_product_kernel(device.run, pairs_of(pairs, h.size(0)), h.const_data_ptr<scalar_t>(), h.size(1),
                        out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

template <class Device>
void pair_product_backward_(Tensor grad_h, const Tensor& given_grad_product, const Tensor& given_h,
                            const Tensor& given_pairs) {
  check_pairs(given_h, given_pairs);
  check_dtype("grad_h", grad_h, sum_type(given_h));
  check_shape("grad_h", grad_h, {{"num_nodes", given_h.size(0)}, {"channels", given_h.size(1)}});
  check_device("grad_h", grad_h, "h", given_h);
  check_contiguous("grad_h", grad_h);
  check_dtype("grad_product", given_grad_product, given_h.scalar_type());
  check_shape("grad_product", given_grad_product,
              {{"num_pairs", given_pairs.size(1)}, {"channels", given_h.size(1)}});
  check_device("grad_product", given_grad_product, "h", given_h);
  check_apart("grad_h", grad_h, "h", given_h);
  check_apart("grad_h", grad_h, "grad_product", given_grad_product);
  const Device device(given_h);
  const Tensor grad_product = contiguous(given_grad_product), h = contiguous(given_h),
               pairs = readable(given_pairs);
  GPN_DISPATCH(h, "gpn::pair_product_backward_", [&] {
    pair_product_backward_kernel(device.run, pairs_of(pairs, h.size(0)),
                                 grad_product.const_data_ptr<scalar_t>(), h.const_data_ptr<scalar_t>(),
                                 h.size(1), grad_h.mutable_data_ptr<Sum<scalar_t>>(), Scratch<Device>(h));
  });
}

}  // namespace gpn
