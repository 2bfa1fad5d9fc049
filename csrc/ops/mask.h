// gpn::mask, what the edges inside a cluster add up to.
#pragma once

#include "host.h"

namespace gpn {

template <class Device>
std::tuple<Tensor, Tensor> mask(const Tensor& given_edge_index, const Tensor& given_scores,
                                const Tensor& given_cluster, int64_t num_clusters,
                                std::optional<Tensor> given_order, std::optional<Tensor> given_takes_part) {
  check_edge_index(given_edge_index);
  check_scores(given_scores, given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  check_count("num_clusters", num_clusters);
  if (given_order) {
    check_dtype("order", *given_order, ScalarType::Int);
    const int64_t size = InnerEdges::size(given_edge_index.size(1), given_cluster.size(0));
    check_shape("order", *given_order, {{"2 num_edges + num_nodes + 1", size}});
    check_device("order", *given_order, "edge_index", given_edge_index);
  }
  if (given_takes_part) check_takes_part(*given_takes_part, given_edge_index);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), scores = contiguous(given_scores),
               cluster = contiguous(given_cluster),
               order = given_order ? contiguous(*given_order) : edge_index,
               takes_part = given_takes_part ? contiguous(*given_takes_part) : edge_index;
  const Edges edges = edges_of(edge_index, cluster.size(0));
  const Tensor total = new_rows<Device>(scores, num_clusters), count = new_ids<Device>(scores, num_clusters);
  GPN_DISPATCH(scores, "gpn::mask", [&] {
    mask_kernel(device.run, edges, scores.const_data_ptr<scalar_t>(), cluster.const_data_ptr<int64_t>(),
                num_clusters, given_takes_part ? takes_part.const_data_ptr<bool>() : nullptr,
                given_order ? reinterpret_cast<const uint32_t*>(order.const_data_ptr<int32_t>()) : nullptr,
                total.mutable_data_ptr<scalar_t>(), count.mutable_data_ptr<int64_t>(),
                Scratch<Device>(scores));
  });
  return {total, count};
}

template <class Device>
Tensor mask_backward(const Tensor& given_grad, const Tensor& given_edge_index, const Tensor& given_cluster,
                     std::optional<Tensor> given_takes_part) {
  check_edge_index(given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  check_floating("grad", given_grad);
  check_shape("grad", given_grad, {{"num_clusters"}});
  check_device("grad", given_grad, "edge_index", given_edge_index);
  if (given_takes_part) check_takes_part(*given_takes_part, given_edge_index);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), cluster = contiguous(given_cluster),
               grad = contiguous(given_grad),
               takes_part = given_takes_part ? contiguous(*given_takes_part) : edge_index;
  const Edges edges = edges_of(edge_index, cluster.size(0));
  const Tensor grad_scores = new_rows<Device>(grad, edges.count);
  GPN_DISPATCH(grad, "gpn::mask_backward", [&] {
    mask_backward_kernel(device.run, edges, cluster.const_data_ptr<int64_t>(), grad.size(0),
                         given_takes_part ? takes_part.const_data_ptr<bool>() : nullptr,
                         grad.const_data_ptr<scalar_t>(), grad_scores.mutable_data_ptr<scalar_t>());
  });
  return grad_scores;
}

}  // namespace gpn
