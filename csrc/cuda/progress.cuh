// How far the graphs of a batch have come, on CUDA.
#pragma once

#include <algorithm>

#include "../core/atomic.h"
#include "../core/progress.h"
#include "launch.cuh"

namespace gpn::cuda {

// Registers: 32.
template <class Count>
__global__ void start_progress(Progress progress, Count* sizes, Count* shrinks, Count* goes_on) {
  for (int64_t i = thread_index(); i < kNumProgressSizes; i += thread_count()) {
    sizes[i] = i == kAllClusters      ? (progress.count ? progress.count[0] : progress.coarse.num_nodes)
               : i == kAllCoarseEdges ? (progress.count ? progress.count[1] : progress.coarse.count)
                                      : 0;
  }
  for (int64_t g = thread_index(); g < progress.num_graphs; g += thread_count()) {
    shrinks[g] = progress.cluster ? 0 : 1;
    goes_on[g] = 0;
  }
}

// Registers: 40.
template <class Flag>
__global__ void mark_shrinking(Progress progress, Flag* shrinks) {
  for (int64_t e = thread_index(); e < progress.edges.count; e += thread_count()) {
    if (!progress.joins(e)) continue;
    const int64_t graph = progress.graph_of_node(progress.edges.row[e]);
    if (graph >= 0) atomic_raise(shrinks + graph, Flag(1));
  }
}

// Registers: 40.
template <class Flag>
__global__ void mark_going_on(Progress progress, const Flag* shrinks, Flag* goes_on) {
  const Edges& coarse = progress.coarse;
  for (int64_t e = thread_index(); e < coarse.count; e += thread_count()) {
    const int64_t row = coarse.row[e], col = coarse.col[e];
    if (row == col) continue;  // padding too
    for (int end = 0; end < 2; ++end) {
      const int64_t graph = progress.graph_of_cluster(end ? col : row);
      if (graph >= 0 && shrinks[graph]) atomic_raise(goes_on + graph, Flag(1));
    }
  }
}

// Adds a number of every thread of the warp to *total.
template <class Count>
__device__ void add_of_warp(Count value, Count* total) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, offset);
  }
  if (threadIdx.x % kWarp == 0 && value > 0) {
    AtomicRef<Count>(*total).fetch_add(value, memory_order_relaxed);
  }
}

// Registers: 64.
template <class Count>
__global__ void count_progress(Progress progress, const Count* shrinks, const Count* goes_on, Count* sizes) {
  const Edges &edges = progress.edges, &coarse = progress.coarse;
  Count nodes = 0, own_edges = 0, clusters = 0, clusters_on = 0;
  for (int64_t i = thread_index(); i < edges.num_nodes; i += thread_count()) {
    const int64_t graph = progress.graph_of_node(i);
    if (graph >= 0) nodes += shrinks[graph];
  }
  for (int64_t i = thread_index(); i < edges.count; i += thread_count()) {
    const int64_t graph = progress.graph_of_node(edges.row[i]);
    if (graph >= 0) own_edges += shrinks[graph];
  }
  for (int64_t c = thread_index(); c < coarse.num_nodes; c += thread_count()) {
    const int64_t graph = progress.graph_of_cluster(c);
    if (graph < 0) continue;
    clusters += shrinks[graph];
    clusters_on += goes_on[graph];
  }
  add_of_warp(nodes, sizes + kNodes);
  add_of_warp(own_edges, sizes + kEdges);
  add_of_warp(clusters, sizes + kClusters);
  add_of_warp(clusters_on, sizes + kClustersOn);

  Count coarse_edges = 0, coarse_edges_on = 0, loops = 0, one_way = 0;
  for (int64_t e = thread_index(); e < coarse.count; e += thread_count()) {
    const int64_t row = coarse.row[e], col = coarse.col[e];
    const int64_t graph = progress.graph_of_cluster(row);
    if (graph < 0) continue;
    coarse_edges += shrinks[graph];
    if (!goes_on[graph]) continue;
    ++coarse_edges_on;
    if (!progress.cluster) continue;
    loops += row == col;
    one_way += find_edge(coarse, progress.num_coarse_edges(), col, row) < 0;
  }
  add_of_warp(coarse_edges, sizes + kCoarseEdges);
  add_of_warp(coarse_edges_on, sizes + kCoarseEdgesOn);
  add_of_warp(loops, sizes + kLoopsOn);
  add_of_warp(one_way, sizes + kOneWayOn);
}

template <class Scratch>
void progress_kernel(const Launcher& launch, const Progress& progress, int64_t* sizes, int64_t* shrinks,
                     int64_t* goes_on, const Scratch&) {
  const Edges &edges = progress.edges, &coarse = progress.coarse;
  launch(start_progress<int64_t>, std::max<int64_t>(kNumProgressSizes, progress.num_graphs), progress, sizes,
         shrinks, goes_on);
  if (progress.cluster) launch(mark_shrinking<int64_t>, edges.count, progress, shrinks);
  launch(mark_going_on<int64_t>, coarse.count, progress, shrinks, goes_on);
  launch(count_progress<int64_t>, std::max({edges.num_nodes, edges.count, coarse.num_nodes, coarse.count}),
         progress, shrinks, goes_on, sizes);
}

}  // namespace gpn::cuda
