// gpn::reduce, sums, means and maxima over the rows of a cluster; gpn::accumulate_ and gpn::cluster_sizes,
// its parts.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
Tensor reduce(const Tensor& given_x, const Tensor& given_cluster, int64_t num_clusters,
              const std::string& reduce) {
  check_x_and_cluster(given_x, given_cluster);
  check_count("num_clusters", num_clusters);
  const Reduction reduction = reduction_of(reduce);
  const Device device(given_x);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Tensor out = new_rows<Device>(x, num_clusters);
  GPN_DISPATCH(x, "gpn::reduce", [&] {
    reduce_kernel(device.run, segments_of(cluster, width_of(x), num_clusters), x.const_data_ptr<scalar_t>(),
                  reduction, out.mutable_data_ptr<scalar_t>(), Scratch<Device>(x));
  });
  return out;
}

template <class Device>
Tensor reduce_max_backward(const Tensor& given_grad, const Tensor& given_x, const Tensor& given_maximum,
                           const Tensor& given_cluster) {
  check_x_and_cluster(given_x, given_cluster);
  check_shape("maximum", given_maximum, {{"num_clusters"}, {"..."}});
  const int64_t num_clusters = given_maximum.size(0);
  check_rows("maximum", given_maximum, given_x, num_clusters);
  check_rows("grad", given_grad, given_x, num_clusters);
  const Device device(given_x);
  const Tensor grad = contiguous(given_grad), x = contiguous(given_x), maximum = contiguous(given_maximum),
               cluster = contiguous(given_cluster);
  const Tensor grad_x = new_rows<Device>(x, x.size(0));
  GPN_DISPATCH(x, "gpn::reduce_max_backward", [&] {
    reduce_max_backward_kernel(device.run, segments_of(cluster, width_of(x), num_clusters),
                               grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                               maximum.const_data_ptr<scalar_t>(), grad_x.mutable_data_ptr<scalar_t>(),
                               Scratch<Device>(x));
  });
  return grad_x;
}

template <class Device>
void accumulate_(Tensor out, const Tensor& given_x, const Tensor& given_cluster) {
  check_x_and_cluster(given_x, given_cluster);
  check_dtype("out", out, sum_type(given_x));
  bool fits = out.dim() == given_x.dim();
  for (int64_t d = 1; fits && d < out.dim(); ++d) fits = out.size(d) == given_x.size(d);
  if (!fits) {
    fail("out: expected shape [num_clusters, ...] with the row shape of x ", shape_name(given_x), ", got ",
         shape_name(out));
  }
  check_device("out", out, "x", given_x);
  check_contiguous("out", out);
  check_apart("out", out, "x", given_x);
  const Device device(given_x);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  GPN_DISPATCH(x, "gpn::accumulate_", [&] {
    accumulate_kernel(device.run, segments_of(cluster, width_of(x), out.size(0)),
                      x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<Sum<scalar_t>>(),
                      Scratch<Device>(x));
  });
}

template <class Device>
Tensor cluster_sizes(const Tensor& given_cluster, int64_t num_clusters) {
  check_cluster(given_cluster);
  check_count("num_clusters", num_clusters);
  const Device device(given_cluster);
  const Tensor cluster = contiguous(given_cluster);
  const Tensor sizes = new_ids<Device>(cluster, num_clusters);
  cluster_sizes_kernel(device.run, segments_of(cluster, 1, num_clusters), sizes.mutable_data_ptr<int64_t>());
  return sizes;
}

}  // namespace gpn
