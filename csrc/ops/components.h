// gpn::components, the connected components of any edge list.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
Tensor components(const Tensor& given_edge_index, std::optional<int64_t> num_nodes) {
  check_edge_index(given_edge_index);
  check_num_nodes(num_nodes);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index);
  const Edges edges = edges_of(device, edge_index, num_nodes);
  const Tensor label = new_ids<Device>(edge_index, edges.num_nodes);
  components_kernel(device.run, edges, label.mutable_data_ptr<int64_t>(), Scratch<Device>(label));
  return label;
}

}  // namespace gpn
