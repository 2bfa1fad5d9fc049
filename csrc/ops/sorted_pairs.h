// gpn::sorted_pairs, the undirected edges of sorted edges that have their reverses.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
std::tuple<Tensor, Tensor> sorted_pairs(const Tensor& given_edge_index, int64_t num_nodes,
                                        int64_t num_pairs) {
  check_edge_index(given_edge_index);
  check_num_nodes(num_nodes);
  check_count("num_pairs", num_pairs);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index);
  const Edges edges = edges_of(edge_index, num_nodes);
  const Tensor slot = new_ids<Device>(edge_index, edges.count);
  const Tensor pairs = Device::new_tensor(edge_index, {2, num_pairs}, ScalarType::Long);
  sorted_pairs_kernel(device.run, edges, num_pairs, pairs.mutable_data_ptr<int64_t>(),
                      slot.mutable_data_ptr<int64_t>(), Scratch<Device>(edge_index));
  return {pairs, slot};
}

}  // namespace gpn
