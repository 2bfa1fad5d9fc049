// gpn::undirected, the undirected edges of an edge list.
#pragma once

#include "coarsen.h"

namespace gpn {

template <class Device>
std::tuple<Tensor, Tensor> undirected(const Tensor& given_edge_index, int64_t num_nodes) {
  check_edge_index(given_edge_index);
  check_num_nodes(num_nodes);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index);
  const Edges edges = edges_of(edge_index, num_nodes);
  const Tensor slot = new_ids<Device>(edge_index, edges.count);
  Found<Device> found{edge_index};
  undirected_kernel(device.run, edges, slot.mutable_data_ptr<int64_t>(), found, Scratch<Device>(edge_index));
  return {found.edges, slot};
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> undirected_padded(const Tensor& given_edge_index, int64_t num_nodes,
                                                     int64_t num_pairs) {
  check_edge_index(given_edge_index);
  check_num_nodes(num_nodes);
  check_count("num_pairs", num_pairs);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index);
  const Edges edges = edges_of(edge_index, num_nodes);
  const Tensor slot = new_ids<Device>(edge_index, edges.count), count = new_ids<Device>(edge_index, 2);
  const Tensor pairs = Device::new_tensor(edge_index, {2, num_pairs}, ScalarType::Long);
  undirected_padded_kernel(
      device.run, edges, slot.mutable_data_ptr<int64_t>(),
      Padded{pairs.mutable_data_ptr<int64_t>(), num_pairs, nullptr, 0, count.mutable_data_ptr<int64_t>()},
      Scratch<Device>(edge_index));
  return {pairs, slot, count};
}

}  // namespace gpn
