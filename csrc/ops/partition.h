// gpn::partition, the nodes of some graphs of a batch before those of the others.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
std::tuple<Tensor, Tensor> partition(const Tensor& given_wanted, const Tensor& given_batch,
                                     int64_t num_wanted) {
  check_dtype("wanted", given_wanted, ScalarType::Long);
  check_shape("wanted", given_wanted, {{"num_graphs"}});
  check_dtype("batch", given_batch, ScalarType::Long);
  check_shape("batch", given_batch, {{"num_nodes"}});
  check_device("batch", given_batch, "wanted", given_wanted);
  check_count("num_wanted", num_wanted);
  const Device device(given_batch);
  const Tensor wanted = contiguous(given_wanted), batch = contiguous(given_batch);
  const int64_t num_nodes = batch.size(0);
  const Tensor order = new_ids<Device>(batch, num_nodes), number = new_ids<Device>(batch, num_nodes);
  const Wanted nodes{wanted.const_data_ptr<int64_t>(), wanted.size(0), batch.const_data_ptr<int64_t>()};
  partition_kernel(device.run, nodes, num_nodes, num_wanted, order.mutable_data_ptr<int64_t>(),
                   number.mutable_data_ptr<int64_t>(), Scratch<Device>(batch));
  return {order, number};
}

}  // namespace gpn
