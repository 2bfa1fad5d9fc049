// gpn::reduce and its kin, and gpn::mask, for CUDA tensors: checks, dtype dispatch, memory, device and stream
// around segments.cuh.
#include <torch/csrc/stable/library.h>

#include "segments.cuh"
#include "torch_device.h"

namespace gpn::cuda {
namespace {

using torch::stable::contiguous;

Segments<> segments_of(const Tensor& cluster, int64_t width, int64_t num_clusters) {
  return {cluster.const_data_ptr<int64_t>(), cluster.size(0), width, num_clusters};
}

Tensor cluster_sizes_cuda(const Tensor& given, int64_t num_clusters) {
  check_cluster(given);
  check_count("num_clusters", num_clusters);
  const OnDevice device(given);
  const Tensor cluster = contiguous(given);
  const Tensor sizes = empty_like_on(cluster, num_clusters, ScalarType::Long);
  device.launch(fill<int64_t>, num_clusters, sizes.mutable_data_ptr<int64_t>(), num_clusters, 0);
  device.launch(count_rows<int64_t>, cluster.size(0), segments_of(cluster, 1, num_clusters),
                sizes.mutable_data_ptr<int64_t>());
  return sizes;
}

Tensor reduce_cuda(const Tensor& given_x, const Tensor& given_cluster, int64_t num_clusters,
                   const std::string& reduce) {
  check_x_and_cluster(given_x, given_cluster);
  check_count("num_clusters", num_clusters);
  const Reduction reduction = reduction_of(reduce);
  const OnDevice device(given_x);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Tensor out = torch::stable::new_empty(x, with_rows(x, num_clusters));
  with_index(std::max(x.size(0), num_clusters), [&](auto index) {
    GPN_DISPATCH(x, "gpn::reduce", [&] {
      cuda::reduce<decltype(index)>(device.launch, segments_of(cluster, width_of(x), num_clusters),
                                    x.const_data_ptr<scalar_t>(), reduction, out.mutable_data_ptr<scalar_t>(),
                                    Scratch(x));
    });
  });
  return out;
}

Tensor reduce_max_backward_cuda(const Tensor& given_grad, const Tensor& given_x, const Tensor& given_maximum,
                                const Tensor& given_cluster) {
  check_x_and_cluster(given_x, given_cluster);
  check_shape("maximum", given_maximum, {{"num_clusters"}, {"..."}});
  const int64_t num_clusters = given_maximum.size(0);
  check_rows("maximum", given_maximum, given_x, num_clusters);
  check_rows("grad", given_grad, given_x, num_clusters);
  const OnDevice device(given_x);
  const Tensor grad = contiguous(given_grad), x = contiguous(given_x), maximum = contiguous(given_maximum);
  const Tensor cluster = contiguous(given_cluster);
  const Tensor grad_x = torch::stable::empty_like(x);
  with_index(std::max(x.size(0), num_clusters), [&](auto index) {
    GPN_DISPATCH(x, "gpn::reduce_max_backward", [&] {
      maximum_backward<decltype(index)>(device.launch, segments_of(cluster, width_of(x), num_clusters),
                                        grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                                        maximum.const_data_ptr<scalar_t>(),
                                        grad_x.mutable_data_ptr<scalar_t>(), Scratch(x));
    });
  });
  return grad_x;
}

void accumulate_cuda(Tensor out, const Tensor& given_x, const Tensor& given_cluster) {
  check_accumulate(out, given_x, given_cluster);
  const OnDevice device(given_x);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  with_index(std::max(x.size(0), out.size(0)), [&](auto index) {
    GPN_DISPATCH(x, "gpn::accumulate_", [&] {
      accumulate<decltype(index)>(device.launch, segments_of(cluster, width_of(x), out.size(0)),
                                  x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<Sum<scalar_t>>(),
                                  Scratch(x));
    });
  });
}

Tensor lift_cuda(const Tensor& given_x, const Tensor& given_cluster) {
  check_lift(given_x, given_cluster);
  const OnDevice device(given_x);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Tensor out = torch::stable::new_empty(x, with_rows(x, cluster.size(0)));
  GPN_DISPATCH(x, "gpn::lift", [&] {
    device.launch(lift<scalar_t>, out.numel(), segments_of(cluster, width_of(x), x.size(0)),
                  x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

std::tuple<Tensor, Tensor> mask_cuda(const Tensor& given_edge_index, const Tensor& given_scores,
                                     const Tensor& given_cluster, int64_t num_clusters) {
  check_edge_index(given_edge_index);
  check_scores(given_scores, given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  check_count("num_clusters", num_clusters);
  const OnDevice device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), scores = contiguous(given_scores);
  const Tensor cluster = contiguous(given_cluster);
  const Edges edges = pooled_edges(edge_index, cluster.size(0));
  const Tensor total = empty_like_on(scores, num_clusters, scores.scalar_type());
  const Tensor count = empty_like_on(scores, num_clusters, ScalarType::Long);
  with_index(std::max(edges.count, num_clusters), [&](auto index) {
    GPN_DISPATCH(scores, "gpn::mask", [&] {
      mask<decltype(index)>(device.launch, edges, scores.const_data_ptr<scalar_t>(),
                            cluster.const_data_ptr<int64_t>(), num_clusters,
                            total.mutable_data_ptr<scalar_t>(), count.mutable_data_ptr<int64_t>(),
                            Scratch(scores));
    });
  });
  return {total, count};
}

Tensor mask_backward_cuda(const Tensor& given_grad, const Tensor& given_edge_index,
                          const Tensor& given_cluster) {
  check_edge_index(given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  check_floating("grad", given_grad);
  check_shape("grad", given_grad, {{"num_clusters"}});
  const OnDevice device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), cluster = contiguous(given_cluster);
  const Tensor grad = contiguous(given_grad);
  const Edges edges = pooled_edges(edge_index, cluster.size(0));
  const Tensor grad_scores = empty_like_on(grad, edges.count, grad.scalar_type());
  GPN_DISPATCH(grad, "gpn::mask_backward", [&] {
    device.launch(mask_backward<scalar_t>, edges.count, edges, cluster.const_data_ptr<int64_t>(),
                  grad.size(0), grad.const_data_ptr<scalar_t>(), grad_scores.mutable_data_ptr<scalar_t>());
  });
  return grad_scores;
}

}  // namespace
}  // namespace gpn::cuda

STABLE_TORCH_LIBRARY_IMPL(gpn, CUDA, m) {
  m.impl("cluster_sizes", TORCH_BOX(&gpn::cuda::cluster_sizes_cuda));
  m.impl("reduce", TORCH_BOX(&gpn::cuda::reduce_cuda));
  m.impl("reduce_max_backward", TORCH_BOX(&gpn::cuda::reduce_max_backward_cuda));
  m.impl("accumulate_", TORCH_BOX(&gpn::cuda::accumulate_cuda));
  m.impl("lift", TORCH_BOX(&gpn::cuda::lift_cuda));
  m.impl("mask", TORCH_BOX(&gpn::cuda::mask_cuda));
  m.impl("mask_backward", TORCH_BOX(&gpn::cuda::mask_backward_cuda));
}
