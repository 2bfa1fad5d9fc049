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

inline void check_coarsen(const Tensor& edge_index, const Tensor& cluster, const std::optional<Tensor>& batch,
                          bool order_of_loops, const std::optional<Tensor>& takes_part) {
  check_edge_index(edge_index);
  check_cluster(cluster, edge_index);
  if (batch) {
    check_dtype("batch", *batch, ScalarType::Long);
    check_shape("batch", *batch, {{"num_nodes", cluster.size(0)}});
    check_device("batch", *batch, "edge_index", edge_index);
  }
  if (order_of_loops) fail("with_order: expected no self_loops");
  if (takes_part) check_takes_part(*takes_part, edge_index);
}

// Room for InnerEdges, none if they are not wanted.
template <class Device>
Tensor new_order(const Tensor& like, const Edges& edges, bool wanted) {
  if (wanted && !narrow_index(edges.count)) fail("with_order: expected fewer than 2^32 - 1 edges");
  return Device::new_tensor(like, {wanted ? InnerEdges::size(edges.count, edges.num_nodes) : 0},
                            ScalarType::Int);
}

// Null where nothing is wanted.
inline uint32_t* data_of_order(const Tensor& order, bool wanted) {
  return wanted ? reinterpret_cast<uint32_t*>(order.mutable_data_ptr<int32_t>()) : nullptr;
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor> coarsen(const Tensor& given_edge_index,
                                                   const Tensor& given_cluster, bool self_loops,
                                                   bool with_slot, std::optional<Tensor> given_batch,
                                                   bool with_order, std::optional<Tensor> given_takes_part) {
  check_coarsen(given_edge_index, given_cluster, given_batch, self_loops && with_order, given_takes_part);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), cluster = contiguous(given_cluster);
  const Tensor batch = given_batch ? contiguous(*given_batch) : cluster;
  const Tensor takes_part = given_takes_part ? contiguous(*given_takes_part) : cluster;
  const Edges edges = edges_of(edge_index, cluster.size(0));
  const Tensor slot = new_ids<Device>(cluster, with_slot ? edges.count : 0);
  const Tensor order = new_order<Device>(cluster, edges, with_order);
  Found<Device> found{cluster};
  coarsen_kernel(device.run, edges, cluster.const_data_ptr<int64_t>(), self_loops,
                 given_batch ? batch.const_data_ptr<int64_t>() : nullptr,
                 given_takes_part ? takes_part.const_data_ptr<bool>() : nullptr,
                 with_slot ? slot.mutable_data_ptr<int64_t>() : nullptr, data_of_order(order, with_order),
                 found, Scratch<Device>(cluster));
  return {found.edges, slot, found.representative, order};
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> coarsen_padded(
    const Tensor& given_edge_index, const Tensor& given_cluster, int64_t num_clusters, int64_t num_edges,
    bool self_loops, bool with_slot, std::optional<Tensor> given_batch, bool with_order,
    std::optional<Tensor> given_takes_part) {
  check_coarsen(given_edge_index, given_cluster, given_batch, self_loops && with_order, given_takes_part);
  check_count("num_clusters", num_clusters);
  check_count("num_edges", num_edges);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), cluster = contiguous(given_cluster);
  const Tensor batch = given_batch ? contiguous(*given_batch) : cluster;
  const Tensor takes_part = given_takes_part ? contiguous(*given_takes_part) : cluster;
  const Edges edges = edges_of(edge_index, cluster.size(0));
  const Tensor slot = new_ids<Device>(cluster, with_slot ? edges.count : 0);
  const Tensor coarse = Device::new_tensor(cluster, {2, num_edges}, ScalarType::Long);
  const Tensor representative = new_ids<Device>(cluster, num_clusters), count = new_ids<Device>(cluster, 2);
  const Tensor order = new_order<Device>(cluster, edges, with_order);
  const Padded padded{coarse.mutable_data_ptr<int64_t>(), num_edges,
                      representative.mutable_data_ptr<int64_t>(), num_clusters,
                      count.mutable_data_ptr<int64_t>()};
  coarsen_padded_kernel(device.run, edges, cluster.const_data_ptr<int64_t>(), self_loops,
                        given_batch ? batch.const_data_ptr<int64_t>() : nullptr,
                        given_takes_part ? takes_part.const_data_ptr<bool>() : nullptr,
                        with_slot ? slot.mutable_data_ptr<int64_t>() : nullptr,
                        data_of_order(order, with_order), padded, Scratch<Device>(cluster));
  return {coarse, slot, representative, count, order};
}

}  // namespace gpn
