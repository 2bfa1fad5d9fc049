// gpn::coarsen and gpn::undirected for CPU tensors: checks, widths and memory around unique_edges.h.
#include <torch/csrc/stable/library.h>

#include <limits>

#include "../pooling_checks.h"
#include "torch_threads.h"
#include "unique_edges.h"

namespace gpn::cpu {
namespace {

struct Distinct {
  Tensor edges, slot;
};

template <class Word, class View>
Distinct distinct_as(const Tensor& like, const Edges& edges, View view, const EdgeLayout& layout,
                     bool with_slot) {
  const Scratch scratch(like);
  Tensor slot = new_tensor(like, {with_slot ? edges.count : 0}, ScalarType::Long);
  int64_t* slots = with_slot ? slot.mutable_data_ptr<int64_t>() : nullptr;
  const TorchThreads parallel;
  UniqueEdges<TorchThreads, View, Word> unique(parallel, edges, view, layout,
                                               scratch.room<Word>(edges.count));
  if (!unique.scatter(slots))
    report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
  const int64_t count = unique.sort(Scratch(like));
  const Tensor out = new_tensor(like, {2, count}, ScalarType::Long);
  int64_t* row = out.mutable_data_ptr<int64_t>();
  unique.write(row, row + count, slots);
  return {out, slot};
}

// num_ids: renamed nodes lie in [0, num_ids).
template <class View>
Distinct distinct(const Tensor& like, const Edges& edges, View view, int64_t num_ids, bool with_slot) {
  const EdgeLayout layout(edges.count, num_ids, with_slot);
  if (layout.word_bits() <= 32) return distinct_as<uint32_t>(like, edges, view, layout, with_slot);
  if (layout.word_bits() <= 64) return distinct_as<uint64_t>(like, edges, view, layout, with_slot);
  return distinct_as<unsigned __int128>(like, edges, view, layout, with_slot);
}

template <class Id>
std::tuple<Tensor, Tensor, Tensor> coarsen_as(const Tensor& edge_index, const Tensor& cluster,
                                              bool self_loops, bool with_slot) {
  const Edges edges = pooled_edges(edge_index, cluster.size(0));
  const Scratch scratch(cluster);
  Id* narrow = scratch.room<Id>(edges.num_nodes);
  const TorchThreads parallel;
  const int64_t num_clusters =
      narrow_clusters(parallel, cluster.const_data_ptr<int64_t>(), edges.num_nodes, narrow);
  if (num_clusters < 0) report_bad_clusters(cluster, 0, "num_nodes", edges.num_nodes);
  const Tensor representative = new_tensor(cluster, {num_clusters}, ScalarType::Long);
  const int64_t* smallest = representative.mutable_data_ptr<int64_t>();
  smallest_nodes(parallel, narrow, edges.num_nodes, num_clusters, representative.mutable_data_ptr<int64_t>());
  const int64_t gap = std::find(smallest, smallest + num_clusters, edges.num_nodes) - smallest;
  if (gap < num_clusters) {
    fail("cluster: expected every id from 0 to ", num_clusters - 1, ", got no node with id ", gap);
  }
  const Distinct found =
      distinct(cluster, edges, BetweenClusters<Id>{narrow, self_loops}, num_clusters, with_slot);
  return {found.edges, found.slot, representative};
}

std::tuple<Tensor, Tensor, Tensor> coarsen_cpu(const Tensor& edge_index, const Tensor& cluster,
                                               bool self_loops, bool with_slot) {
  check_edge_index(edge_index);
  check_cluster(cluster, edge_index);
  const bool narrow = cluster.size(0) <= std::numeric_limits<int32_t>::max();
  return (narrow ? coarsen_as<int32_t> : coarsen_as<int64_t>)(readable(edge_index),
                                                              torch::stable::contiguous(cluster), self_loops,
                                                              with_slot);
}

std::tuple<Tensor, Tensor> undirected_cpu(const Tensor& given, int64_t num_nodes) {
  check_edge_index(given);
  check_num_nodes(num_nodes);
  const Tensor edge_index = readable(given);
  const Distinct found =
      distinct(edge_index, pooled_edges(edge_index, num_nodes), WithoutDirection(), num_nodes, true);
  return {found.edges, found.slot};
}

}  // namespace
}  // namespace gpn::cpu

STABLE_TORCH_LIBRARY_IMPL(gpn, CPU, m) {
  m.impl("coarsen", TORCH_BOX(&gpn::cpu::coarsen_cpu));
  m.impl("undirected", TORCH_BOX(&gpn::cpu::undirected_cpu));
}
