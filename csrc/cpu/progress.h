// How far the graphs of a batch have come, on the CPU.
#pragma once

#include <mutex>

#include "../core/atomic.h"
#include "../core/progress.h"
#include "sorted_pairs.h"

namespace gpn::cpu {

// sizes: [kNumProgressSizes]; shrinks, goes_on: [num_graphs], 1 or 0.
template <class Parallel, class Scratch>
void progress_kernel(const Parallel& parallel, const Progress& progress, int64_t* sizes, int64_t* shrinks,
                     int64_t* goes_on, const Scratch& scratch) {
  const Edges &edges = progress.edges, &coarse = progress.coarse;
  const int64_t num_coarse_edges = progress.num_coarse_edges();
  std::fill_n(sizes, int64_t(kNumProgressSizes), 0);
  std::fill_n(shrinks, progress.num_graphs, progress.cluster ? 0 : 1);
  std::fill_n(goes_on, progress.num_graphs, 0);
  const auto mark = [](int64_t* flag, int64_t graph) {
    if (graph >= 0 && !atomic_load(flag + graph)) atomic_store(flag + graph, int64_t(1));
  };
  for_each_piece(parallel, progress.cluster ? edges.count : 0, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      if (progress.joins(e)) mark(shrinks, progress.graph_of_node(edges.row[e]));
    }
  });
  for_each_piece(parallel, num_coarse_edges, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      if (coarse.row[e] == coarse.col[e]) continue;
      for (const int64_t c : {coarse.row[e], coarse.col[e]}) {
        const int64_t graph = progress.graph_of_cluster(c);
        if (graph >= 0 && shrinks[graph]) mark(goes_on, graph);
      }
    }
  });

  std::mutex mutex;
  const auto count = [&](int64_t items, const auto& graph_of, ProgressSize shrinking, ProgressSize going_on) {
    for_each_piece(parallel, items, [&](int64_t begin, int64_t end) {
      int64_t shrink = 0, on = 0;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t graph = graph_of(i);
        if (graph < 0) continue;
        shrink += shrinks[graph];
        on += goes_on[graph];
      }
      const std::lock_guard<std::mutex> lock(mutex);
      sizes[shrinking] += shrink;
      if (going_on != shrinking) sizes[going_on] += on;
    });
  };
  count(edges.num_nodes, [&](int64_t v) { return progress.graph_of_node(v); }, kNodes, kNodes);
  count(edges.count, [&](int64_t e) { return progress.graph_of_node(edges.row[e]); }, kEdges, kEdges);
  count(coarse.num_nodes, [&](int64_t c) { return progress.graph_of_cluster(c); }, kClusters, kClustersOn);
  count(
      num_coarse_edges, [&](int64_t e) { return progress.graph_of_cluster(coarse.row[e]); }, kCoarseEdges,
      kCoarseEdgesOn);
  sizes[kAllClusters] = progress.count ? progress.count[0] : coarse.num_nodes;
  sizes[kAllCoarseEdges] = progress.count ? progress.count[1] : coarse.count;
  if (!progress.cluster) return;
  const auto see = [&](int64_t e, int64_t reverse) {
    const int64_t graph = progress.graph_of_cluster(coarse.row[e]);
    if (graph < 0 || !goes_on[graph]) return;
    sizes[kLoopsOn] += coarse.row[e] == coarse.col[e];
    sizes[kOneWayOn] += reverse < 0;
  };
  for_each_reverse(coarse, num_coarse_edges, room<int64_t>(scratch, coarse.num_nodes + 1), see);
}

}  // namespace gpn::cpu
