// gpn::progress, which graphs of a batch shrink, which go on, and how much of them there is.
#pragma once

#include "../core/progress.h"
#include "host.h"

namespace gpn {

template <class Device>
Tensor progress(const Tensor& given_edge_index, const Tensor& given_batch, int64_t num_graphs,
                std::optional<Tensor> given_cluster, std::optional<Tensor> given_coarse,
                std::optional<Tensor> given_representative, std::optional<Tensor> given_count) {
  check_edge_index(given_edge_index);
  check_dtype("batch", given_batch, ScalarType::Long);
  check_shape("batch", given_batch, {{"num_nodes"}});
  check_device("batch", given_batch, "edge_index", given_edge_index);
  check_count("num_graphs", num_graphs);
  const int64_t num_nodes = given_batch.size(0);
  if (given_cluster) {
    check_cluster(*given_cluster, given_edge_index);
    check_shape("cluster", *given_cluster, {{"num_nodes", num_nodes}});
    if (!given_coarse || !given_representative) {
      fail("coarse, representative: expected tensors where there is a cluster");
    }
    check_dtype("coarse", *given_coarse, ScalarType::Long);
    check_shape("coarse", *given_coarse, {{"2", 2}, {"num_edges"}});
    check_device("coarse", *given_coarse, "edge_index", given_edge_index);
    check_dtype("representative", *given_representative, ScalarType::Long);
    check_shape("representative", *given_representative, {{"num_clusters"}});
    check_device("representative", *given_representative, "edge_index", given_edge_index);
    if (given_count) {
      check_dtype("count", *given_count, ScalarType::Long);
      check_shape("count", *given_count, {{"2", 2}});
      check_device("count", *given_count, "edge_index", given_edge_index);
    }
  }
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), batch = contiguous(given_batch);
  const Tensor cluster = given_cluster ? contiguous(*given_cluster) : batch;
  const Tensor coarse = given_cluster ? readable(*given_coarse) : edge_index;
  const Tensor representative = given_cluster ? contiguous(*given_representative) : batch;
  const Tensor count = given_cluster && given_count ? contiguous(*given_count) : batch;
  const auto pointer = [](const Tensor& tensor, bool there) {
    return there ? tensor.const_data_ptr<int64_t>() : nullptr;
  };
  const Progress progress{edges_of(edge_index, num_nodes),
                          pointer(cluster, bool(given_cluster)),
                          batch.const_data_ptr<int64_t>(),
                          num_graphs,
                          {row_of(coarse), col_of(coarse), coarse.size(1), representative.size(0)},
                          pointer(representative, bool(given_cluster)),
                          pointer(count, given_cluster && given_count)};
  const Tensor out = new_ids<Device>(batch, kNumProgressSizes + 2 * num_graphs);
  int64_t* sizes = out.mutable_data_ptr<int64_t>();
  int64_t* shrinks = sizes + kNumProgressSizes;
  progress_kernel(device.run, progress, sizes, shrinks, shrinks + num_graphs, Scratch<Device>(batch));
  return out;
}

}  // namespace gpn
