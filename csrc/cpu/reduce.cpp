// gpn::reduce and its kin, and gpn::mask, for CPU tensors: checks, dtype dispatch and memory around
// segments.h.
#include <torch/csrc/stable/library.h>

#include "../pooling_checks.h"
#include "segments.h"
#include "torch_threads.h"

namespace gpn::cpu {
namespace {

using torch::stable::contiguous;

Segments<> checked_segments(const Tensor& cluster, int64_t lowest, int64_t width, int64_t num_clusters) {
  const int64_t* id = cluster.const_data_ptr<int64_t>();
  if (!all_fit(TorchThreads(), id, cluster.size(0), lowest, num_clusters)) {
    report_bad_clusters(cluster, lowest, "num_clusters", num_clusters);
  }
  return {id, cluster.size(0), width, num_clusters};
}

Tensor cluster_sizes_cpu(const Tensor& given, int64_t num_clusters) {
  check_cluster(given);
  check_count("num_clusters", num_clusters);
  const Tensor cluster = contiguous(given);
  const Segments<> segments = checked_segments(cluster, -1, 1, num_clusters);
  const Tensor sizes = new_tensor(cluster, {num_clusters}, ScalarType::Long);
  count_rows(TorchThreads(), segments.cluster, segments.rows, num_clusters,
             sizes.mutable_data_ptr<int64_t>());
  return sizes;
}

Tensor reduce_cpu(const Tensor& given_x, const Tensor& given_cluster, int64_t num_clusters,
                  const std::string& reduce) {
  check_x_and_cluster(given_x, given_cluster);
  check_count("num_clusters", num_clusters);
  const Reduction reduction = reduction_of(reduce);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Segments<> segments = checked_segments(cluster, -1, width_of(x), num_clusters);
  const TorchThreads parallel;
  const Tensor out = new_tensor(x, with_rows(x, num_clusters), x.scalar_type());
  const Scratch scratch(x);
  int64_t* sizes = nullptr;
  if (reduction != Reduction::kSum) {
    sizes = scratch.room<int64_t>(num_clusters);
    count_rows(parallel, segments.cluster, segments.rows, num_clusters, sizes);
  }
  GPN_DISPATCH(x, "gpn::reduce", [&] {
    const scalar_t* values = x.const_data_ptr<scalar_t>();
    scalar_t* result = out.mutable_data_ptr<scalar_t>();
    if (reduction == Reduction::kMax) {
      maximum(parallel, segments, values, sizes, result);
    } else {
      Sum<scalar_t>* sums = room_for_sums<scalar_t>(out, scratch);
      clear(parallel, sums, out.numel());
      accumulate(parallel, segments, values, sums);
      finish_sums(parallel, sums, sizes, num_clusters, segments.width, result);
    }
  });
  return out;
}

Tensor reduce_max_backward_cpu(const Tensor& given_grad, const Tensor& given_x, const Tensor& given_maximum,
                               const Tensor& given_cluster) {
  check_x_and_cluster(given_x, given_cluster);
  check_shape("maximum", given_maximum, {{"num_clusters"}, {"..."}});
  const int64_t num_clusters = given_maximum.size(0);
  check_rows("maximum", given_maximum, given_x, num_clusters);
  check_rows("grad", given_grad, given_x, num_clusters);
  const Tensor grad = contiguous(given_grad), x = contiguous(given_x), maximum = contiguous(given_maximum);
  const Tensor cluster = contiguous(given_cluster);
  const Segments<> segments = checked_segments(cluster, -1, width_of(x), num_clusters);
  const Tensor grad_x = new_tensor(x, with_rows(x, x.size(0)), x.scalar_type());
  const Scratch scratch(x);
  GPN_DISPATCH(x, "gpn::reduce_max_backward", [&] {
    maximum_backward(TorchThreads(), segments, grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                     maximum.const_data_ptr<scalar_t>(), scratch.room<bool>(maximum.numel()),
                     grad_x.mutable_data_ptr<scalar_t>());
  });
  return grad_x;
}

void accumulate_cpu(Tensor out, const Tensor& given_x, const Tensor& given_cluster) {
  check_accumulate(out, given_x, given_cluster);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Segments<> segments = checked_segments(cluster, -1, width_of(x), out.size(0));
  GPN_DISPATCH(x, "gpn::accumulate_", [&] {
    accumulate(TorchThreads(), segments, x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<Sum<scalar_t>>());
  });
}

Tensor lift_cpu(const Tensor& given_x, const Tensor& given_cluster) {
  check_lift(given_x, given_cluster);
  const Tensor x = contiguous(given_x), cluster = contiguous(given_cluster);
  const Segments<> segments = checked_segments(cluster, -1, width_of(x), x.size(0));
  const Tensor out = new_tensor(x, with_rows(x, cluster.size(0)), x.scalar_type());
  GPN_DISPATCH(x, "gpn::lift", [&] {
    lift(TorchThreads(), segments, x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

template <class Id>
void mask_as(const Edges& edges, const Tensor& scores, const Tensor& cluster, const Tensor& total,
             const Tensor& count) {
  const Scratch scratch(scores);
  const TorchThreads parallel;
  Id* slot = scratch.room<Id>(edges.count);
  if (!for_each_inner(parallel, edges, cluster.const_data_ptr<int64_t>(),
                      [=](int64_t e, int64_t c) { slot[e] = Id(c); })) {
    report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
  }
  GPN_DISPATCH(scores, "gpn::mask", [&] {
    mask(parallel, slot, scores.const_data_ptr<scalar_t>(), edges.count, total.size(0),
         total.mutable_data_ptr<scalar_t>(), room_for_sums<scalar_t>(total, scratch),
         count.mutable_data_ptr<int64_t>());
  });
}

std::tuple<Tensor, Tensor> mask_cpu(const Tensor& given_edge_index, const Tensor& given_scores,
                                    const Tensor& given_cluster, int64_t num_clusters) {
  check_edge_index(given_edge_index);
  check_scores(given_scores, given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  check_count("num_clusters", num_clusters);
  const Tensor edge_index = readable(given_edge_index), scores = contiguous(given_scores);
  const Tensor cluster = contiguous(given_cluster);
  checked_segments(cluster, 0, 1, num_clusters);
  const Edges edges = pooled_edges(edge_index, cluster.size(0));
  const Tensor total = new_tensor(scores, {num_clusters}, scores.scalar_type());
  const Tensor count = new_tensor(scores, {num_clusters}, ScalarType::Long);
  const bool narrow = num_clusters <= std::numeric_limits<int32_t>::max();
  (narrow ? mask_as<int32_t> : mask_as<int64_t>)(edges, scores, cluster, total, count);
  return {total, count};
}

Tensor mask_backward_cpu(const Tensor& given_grad, const Tensor& given_edge_index,
                         const Tensor& given_cluster) {
  check_edge_index(given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  check_floating("grad", given_grad);
  check_shape("grad", given_grad, {{"num_clusters"}});
  const Tensor edge_index = readable(given_edge_index), cluster = contiguous(given_cluster),
               grad = contiguous(given_grad);
  checked_segments(cluster, 0, 1, grad.size(0));
  const Edges edges = pooled_edges(edge_index, cluster.size(0));
  const Tensor grad_scores = new_tensor(grad, {edges.count}, grad.scalar_type());
  GPN_DISPATCH(grad, "gpn::mask_backward", [&] {
    if (!mask_backward(TorchThreads(), edges, cluster.const_data_ptr<int64_t>(),
                       grad.const_data_ptr<scalar_t>(), grad_scores.mutable_data_ptr<scalar_t>())) {
      report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
    }
  });
  return grad_scores;
}

}  // namespace
}  // namespace gpn::cpu

STABLE_TORCH_LIBRARY_IMPL(gpn, CPU, m) {
  m.impl("cluster_sizes", TORCH_BOX(&gpn::cpu::cluster_sizes_cpu));
  m.impl("reduce", TORCH_BOX(&gpn::cpu::reduce_cpu));
  m.impl("reduce_max_backward", TORCH_BOX(&gpn::cpu::reduce_max_backward_cpu));
  m.impl("accumulate_", TORCH_BOX(&gpn::cpu::accumulate_cpu));
  m.impl("lift", TORCH_BOX(&gpn::cpu::lift_cpu));
  m.impl("mask", TORCH_BOX(&gpn::cpu::mask_cpu));
  m.impl("mask_backward", TORCH_BOX(&gpn::cpu::mask_backward_cpu));
}
