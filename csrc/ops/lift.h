// gpn::lift, from clusters back to nodes.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
Tensor lift(const Tensor& given_x, const Tensor& given_cluster) {
  check_floating("x", given_x);
  check_shape("x", given_x, {{"num_clusters"}, {"..."}});
  check_cluster(given_cluster);
  check_device("cluster", given_cluster, "x", given_x);
  const Device device(given_x);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Tensor out = new_rows<Device>(x, cluster.size(0));
  GPN_DISPATCH(x, "gpn::lift", [&] {
    lift_kernel(device.run, segments_of(cluster, width_of(x), x.size(0)), x.const_data_ptr<scalar_t>(),
                out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

}  // namespace gpn
