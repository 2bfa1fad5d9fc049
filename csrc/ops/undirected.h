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

}  // namespace gpn
