// gpn::coarsen and gpn::undirected for CUDA tensors: checks, memory, device and stream around
// unique_edges.cuh.
#include <torch/csrc/stable/library.h>

#include <array>

#include "torch_device.h"
#include "unique_edges.cuh"

namespace gpn::cuda {
namespace {

// counts[0] = the number of distinct edges, counts[1] += 1: from the largest cluster to the number of them.
// Registers: 32.
__global__ void finish_counts(const int64_t* last_rank, int64_t* counts) {
  if (thread_index() > 0) return;
  counts[0] = last_rank ? *last_rank : 0;
  counts[1] += 1;
}

// The number of distinct edges and of clusters: the one place of this file that waits for the device.
class Counts {
 public:
  Counts(const Launcher& launch, const Tensor& like)
      : launch_(launch), counts_(empty_like_on(like, 2, ScalarType::Long)) {
    launch_(fill<int64_t>, 2, data(), 2, -1);
  }
  int64_t* largest_cluster() const { return data() + 1; }

  std::array<int64_t, 2> read(const int64_t* last_rank) const {
    launch_(finish_counts, 1, last_rank, data());
    std::array<int64_t, 2> on_host;
    Launcher::check(
        cudaMemcpyAsync(on_host.data(), data(), sizeof(on_host), cudaMemcpyDeviceToHost, launch_.stream));
    Launcher::check(cudaStreamSynchronize(launch_.stream));
    return on_host;
  }

 private:
  int64_t* data() const { return counts_.mutable_data_ptr<int64_t>(); }
  const Launcher& launch_;
  Tensor counts_;
};

struct Distinct {
  Tensor edges, slot;
  int64_t num_clusters;
};

template <class View>
Distinct distinct(const Launcher& launch, const Tensor& like, const Edges& edges, View view, bool with_slot,
                  const Counts& counts) {
  if (edges.num_nodes > int64_t(1) << kMostIdBits) {
    fail("num_nodes: expected at most 2^", kMostIdBits, " on CUDA, got ", edges.num_nodes);
  }
  const Scratch scratch(like);
  Distinct found;
  with_index(edges.count, [&](auto id) {
    const UniqueEdges<decltype(id)> unique(launch, edges, view, edges.num_nodes, with_slot, scratch);
    const auto [count, num_clusters] = counts.read(unique.last_rank());
    found = {torch::stable::new_empty(like, {2, count}, ScalarType::Long),
             empty_like_on(like, with_slot ? edges.count : 0, ScalarType::Long), num_clusters};
    int64_t* row = found.edges.template mutable_data_ptr<int64_t>();
    unique.write(row, row + count, with_slot ? found.slot.template mutable_data_ptr<int64_t>() : nullptr);
  });
  return found;
}

std::tuple<Tensor, Tensor, Tensor> coarsen_cuda(const Tensor& given_edge_index, const Tensor& given_cluster,
                                                bool self_loops, bool with_slot) {
  check_edge_index(given_edge_index);
  check_cluster(given_cluster, given_edge_index);
  const OnDevice device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), cluster = torch::stable::contiguous(given_cluster);
  const Edges edges = pooled_edges(edge_index, cluster.size(0));
  const int64_t* ids = cluster.const_data_ptr<int64_t>();
  const Counts counts(device.launch, cluster);
  device.launch(find_largest<int64_t>, edges.num_nodes, ids, edges.num_nodes, counts.largest_cluster());
  const Distinct found =
      distinct(device.launch, cluster, edges, BetweenClusters{ids, self_loops}, with_slot, counts);
  const Tensor representative = empty_like_on(cluster, found.num_clusters, ScalarType::Long);
  smallest_nodes(device.launch, ids, edges.num_nodes, found.num_clusters,
                 representative.mutable_data_ptr<int64_t>());
  return {found.edges, found.slot, representative};
}

std::tuple<Tensor, Tensor> undirected_cuda(const Tensor& given, int64_t num_nodes) {
  check_edge_index(given);
  check_num_nodes(num_nodes);
  const OnDevice device(given);
  const Tensor edge_index = readable(given);
  const Counts counts(device.launch, edge_index);
  const Distinct found = distinct(device.launch, edge_index, pooled_edges(edge_index, num_nodes),
                                  WithoutDirection(), true, counts);
  return {found.edges, found.slot};
}

}  // namespace
}  // namespace gpn::cuda

STABLE_TORCH_LIBRARY_IMPL(gpn, CUDA, m) {
  m.impl("coarsen", TORCH_BOX(&gpn::cuda::coarsen_cuda));
  m.impl("undirected", TORCH_BOX(&gpn::cuda::undirected_cuda));
}
