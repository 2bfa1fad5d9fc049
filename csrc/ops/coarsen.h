// gpn::coarsen, the graph between clusters.
#pragma once

#include "host.h"

namespace gpn {

// Results whose sizes a kernel finds out: it asks for them when it knows.
template <class Device>
struct Found {
  const Tensor& like;
  Tensor edges{}, representative{};

  // Room for both ends of `count` edges: the columns begin where the rows end.
  int64_t* new_edges(int64_t count) {
    edges = Device::new_tensor(like, {2, count}, ScalarType::Long);
    return edges.mutable_data_ptr<int64_t>();
  }
  int64_t* new_representative(int64_t num_clusters) {
    representative = new_ids<Device>(like, num_clusters);
    return representative.mutable_data_ptr<int64_t>();
  }
};

template <class Device>
std::tuple<Tensor, Tensor, Tensor> coarsen(const Tensor& given_edge_index, const Tensor& given_cluster,
                                           bool self_loops, bool with_slot,
                                           std::optional<Tensor> given_batch) {
  check_edge_index(given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  if (given_batch) {
    check_dtype("batch", *given_batch, ScalarType::Long);
    check_shape("batch", *given_batch, {{"num_nodes", given_cluster.size(0)}});
    check_device("batch", *given_batch, "edge_index", given_edge_index);
  }
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), cluster = contiguous(given_cluster);
  const Tensor batch = given_batch ? contiguous(*given_batch) : cluster;
  const Edges edges = edges_of(edge_index, cluster.size(0));
  const Tensor slot = new_ids<Device>(cluster, with_slot ? edges.count : 0);
  Found<Device> found{cluster};
  coarsen_kernel(device.run, edges, cluster.const_data_ptr<int64_t>(), self_loops,
                 given_batch ? batch.const_data_ptr<int64_t>() : nullptr,
                 with_slot ? slot.mutable_data_ptr<int64_t>() : nullptr, found, Scratch<Device>(cluster));
  return {found.edges, slot, found.representative};
}

}  // namespace gpn
