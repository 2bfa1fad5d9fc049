// gpn::dropout, which keeps no mask: what is dropped follows from a seed and an element's place; and
// gpn::dropout_, the same in place.
#pragma once

#include <cmath>

#include "../core/random.h"
#include "host.h"

namespace gpn {

inline void check_seed(const Tensor& seed, const char* other_name, const Tensor& other) {
  check_dtype("seed", seed, ScalarType::Long);
  if (seed.dim() != 0) fail("seed: expected a scalar, got shape ", shape_name(seed));
  check_device("seed", seed, other_name, other);
}

inline void check_dropout(const Tensor& x, const Tensor& seed, double p, int64_t first) {
  check_floating("x", x);
  check_seed(seed, "x", x);
  if (!(p >= 0 && p <= 1)) fail("p: expected a probability, got ", p);
  check_count("first", first);
}

// Probabilities are rounded to multiples of 2^-16.
template <class T>
Dropout<T> dropout_of(double p, bool relu) {
  const double dropped = std::nearbyint(p * kLaneValues);
  const double scale = dropped == kLaneValues ? 0 : 1 / (1 - dropped / kLaneValues);
  return {int32_t(dropped), T(scale), relu};
}

template <class Device>
void drop(const Tensor& x, const Tensor& seed, double p, bool relu, int64_t first, const Tensor& out) {
  const Device device(x);
  GPN_DISPATCH(x, "gpn::dropout", [&] {
    dropout_kernel(device.run, dropout_of<Sum<scalar_t>>(p, relu), seed.const_data_ptr<int64_t>(), first,
                   x.numel(), x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>());
  });
}

template <class Device>
Tensor dropout(const Tensor& given_x, const Tensor& seed, double p, bool relu, int64_t first) {
  check_dropout(given_x, seed, p, first);
  const Tensor x = contiguous(given_x);
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < x.dim(); ++d) shape.push_back(x.size(d));
  const Tensor out = Device::new_tensor(x, shape, x.scalar_type());
  drop<Device>(x, seed, p, relu, first, out);
  return out;
}

template <class Device>
void dropout_(Tensor x, const Tensor& seed, double p, bool relu, int64_t first) {
  check_dropout(x, seed, p, first);
  check_contiguous("x", x);
  drop<Device>(x, seed, p, relu, first, x);
}

}  // namespace gpn
