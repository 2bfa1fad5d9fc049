// gpn::parse, the clusters that dominant edges make.
#pragma once

#include "host.h"

namespace gpn {

inline void check_parse(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  check_edge_index(edge_index);
  check_scores(scores, edge_index);
  check_num_nodes(num_nodes);
}

template <class Device>
Tensor parse(const Tensor& given_edge_index, const Tensor& given_scores, std::optional<int64_t> num_nodes) {
  check_parse(given_edge_index, given_scores, num_nodes);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), scores = contiguous(given_scores);
  const Edges edges = edges_of(device, edge_index, num_nodes);
  const Tensor cluster = new_ids<Device>(edge_index, edges.num_nodes);
  GPN_DISPATCH(scores, "gpn::parse", [&] {
    parse_kernel(device.run, edges, scores.const_data_ptr<scalar_t>(), cluster.mutable_data_ptr<int64_t>(),
                 Scratch<Device>(cluster));
  });
  return cluster;
}

}  // namespace gpn
