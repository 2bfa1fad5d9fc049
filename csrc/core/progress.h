// How far the graphs of a batch have come: what a level of pooling asks about each of them.
#pragma once

#include "edges.h"

namespace gpn {

// The numbers that gpn::progress counts, in this order.
enum ProgressSize {
  kNodes,           // of graphs that shrink
  kEdges,           // theirs
  kClusters,        // theirs
  kCoarseEdges,     // theirs
  kClustersOn,      // of graphs that shrink and still have an edge between two clusters: they go on
  kCoarseEdgesOn,   // theirs
  kLoopsOn,         // of these, self-loops
  kOneWayOn,        // of these, edges whose reverse is not there
  kAllClusters,     // of all graphs
  kAllCoarseEdges,  // of all graphs
  kNumProgressSizes,
};

struct Progress {
  Edges edges;
  const int64_t* cluster;  // [edges.num_nodes], or null: every graph shrinks, and `coarse` is `edges`
  const int64_t* batch;    // [edges.num_nodes] the graph of every node; out of range: none
  int64_t num_graphs;
  Edges coarse;  // between clusters, perhaps with -1 at the end; sorted if there is `cluster`
  const int64_t* representative;  // [coarse.num_nodes] a node of each cluster, perhaps with -1 at the end
  const int64_t* count;           // [2] how many clusters and coarse edges there are, or null: all

  GPN_HOST_DEVICE int64_t graph_of_node(int64_t node) const {
    if (uint64_t(node) >= uint64_t(edges.num_nodes)) return -1;
    return uint64_t(batch[node]) < uint64_t(num_graphs) ? batch[node] : -1;
  }
  GPN_HOST_DEVICE int64_t graph_of_cluster(int64_t c) const {
    if (!representative) return graph_of_node(c);
    return uint64_t(c) < uint64_t(coarse.num_nodes) ? graph_of_node(representative[c]) : -1;
  }
  // Whether two nodes become one across this edge.
  GPN_HOST_DEVICE bool joins(int64_t edge) const {
    const int64_t row = edges.row[edge], col = edges.col[edge];
    return row != col && uint64_t(row) < uint64_t(edges.num_nodes) &&
           uint64_t(col) < uint64_t(edges.num_nodes) && cluster[row] == cluster[col];
  }
  GPN_HOST_DEVICE int64_t num_coarse_edges() const {
    return count && count[1] < coarse.count ? count[1] : coarse.count;
  }
};

// Where an edge is among the first `count` of a sorted list, -1 if it is not there.
GPN_HOST_DEVICE int64_t find_edge(const Edges& sorted, int64_t count, int64_t row, int64_t col) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t r = sorted.row[middle];
    if (r < row || (r == row && sorted.col[middle] < col)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && sorted.row[low] == row && sorted.col[low] == col ? low : -1;
}

}  // namespace gpn
