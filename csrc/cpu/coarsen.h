// The graph between clusters, on the CPU.
#pragma once

#include <limits>

#include "unique_edges.h"

namespace gpn::cpu {

// An edge seen as an edge between clusters; those inside a cluster are dropped unless loops are kept.
template <class Id>
struct BetweenClusters {
  static constexpr bool kRowNeedsCol = false;
  const Id* cluster;
  bool self_loops;
  const int64_t* batch = nullptr;  // the graph of every node, or null: then edges may join any two

  // Of columns alone: rows mostly ascend, and the processor fetches those itself.
  void fetch(int64_t col) const { prefetch_read(cluster + col); }
  uint64_t row(int64_t row, int64_t) const { return cluster[row]; }
  uint64_t col(int64_t, int64_t col) const { return cluster[col]; }
  bool accepts(const int64_t* row, const int64_t* col, int64_t count) const {
    if (!batch) return true;
    int64_t differ = 0;
    for (int64_t i = 0; i < count; ++i) differ |= batch[row[i]] ^ batch[col[i]];
    return differ == 0;
  }
  bool keeps(uint64_t row, uint64_t col) const { return (row != col) | self_loops; }
};

// The number of clusters, -1 if an id is not below `count`. narrow: a copy of the ids.
template <class Parallel, class Id>
int64_t narrow_clusters(const Parallel& parallel, const int64_t* cluster, int64_t count, Id* narrow) {
  const Pieces pieces = cut(parallel, count);
  std::vector<int64_t> largest(pieces.tasks, -1);
  std::atomic<bool> bad = false;
  parallel(pieces.tasks, [&](int64_t task) {
    int64_t most = -1;
    uint64_t signs = 0;
    for (int64_t v = pieces.begin(task); v < pieces.end(task); ++v) {
      most = std::max(most, cluster[v]);
      signs |= uint64_t(cluster[v]) | (uint64_t(count - 1) - uint64_t(cluster[v]));
      narrow[v] = Id(cluster[v]);
    }
    largest[task] = most;
    if (int64_t(signs) < 0) bad = true;
  });
  return bad ? -1 : *std::max_element(largest.begin(), largest.end()) + 1;
}

// representative[c] = the smallest node of cluster c, num_nodes where there is none.
template <class Parallel, class Id>
void smallest_nodes(const Parallel& parallel, const Id* cluster, int64_t num_nodes, int64_t num_clusters,
                    int64_t* representative) {
  for_each_piece(parallel, num_clusters, [&](int64_t begin, int64_t end) {
    std::fill(representative + begin, representative + end, num_nodes);
  });
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) atomic_lower(representative + cluster[v], v);
  });
}

template <class Id, class Parallel, class Found, class Scratch>
void coarsen_as(const Parallel& parallel, const Edges& edges, const int64_t* cluster, bool self_loops,
                const int64_t* batch, int64_t* slot, Found& found, const Scratch& scratch) {
  Id* narrow = room<Id>(scratch, edges.num_nodes);
  const int64_t num_clusters = narrow_clusters(parallel, cluster, edges.num_nodes, narrow);
  if (num_clusters < 0) report_bad_clusters(cluster, edges.num_nodes, 0, "num_nodes", edges.num_nodes);
  int64_t* representative = found.new_representative(num_clusters);
  smallest_nodes(parallel, narrow, edges.num_nodes, num_clusters, representative);
  const int64_t gap =
      std::find(representative, representative + num_clusters, edges.num_nodes) - representative;
  if (gap < num_clusters) {
    fail("cluster: expected every id from 0 to ", num_clusters - 1, ", got no node with id ", gap);
  }
  const BetweenClusters<Id> view{narrow, self_loops, batch};
  if (!distinct(parallel, edges, view, num_clusters, slot, found, scratch)) {
    report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
    report_joined_graphs(edges, batch);
  }
}

// What other devices have from their sort. takes_part: of every edge, or null: all do.
inline void order_inner_edges(const Edges& edges, const int64_t* cluster, const bool* takes_part,
                              const InnerEdges& inner) {
  const auto is_inner = [&](int64_t e) {
    return (!takes_part || takes_part[e]) && cluster[edges.row[e]] == cluster[edges.col[e]];
  };
  std::vector<int64_t> next(edges.num_nodes + 1);
  for (int64_t e = 0; e < edges.count; ++e) next[cluster[edges.row[e]] + 1] += is_inner(e);
  for (int64_t c = 0; c < edges.num_nodes; ++c) next[c + 1] += next[c];
  std::copy_n(next.data(), edges.num_nodes + 1, inner.begin);
  std::fill_n(inner.cluster, size_t(edges.count), uint32_t(-1));
  std::fill_n(inner.edge, size_t(edges.count), uint32_t(-1));
  for (int64_t e = 0; e < edges.count; ++e) {
    if (!is_inner(e)) continue;
    const int64_t at = next[cluster[edges.row[e]]]++;
    inner.cluster[at] = uint32_t(cluster[edges.row[e]]);
    inner.edge[at] = uint32_t(e);
  }
}

template <class Parallel, class Found, class Scratch>
void coarsen_all(const Parallel& parallel, const Edges& edges, const int64_t* cluster, bool self_loops,
                 const int64_t* batch, int64_t* slot, Found& found, const Scratch& scratch) {
  if (edges.num_nodes <= std::numeric_limits<int32_t>::max()) {
    coarsen_as<int32_t>(parallel, edges, cluster, self_loops, batch, slot, found, scratch);
  } else {
    coarsen_as<int64_t>(parallel, edges, cluster, self_loops, batch, slot, found, scratch);
  }
}

// coarsen_all() on a list of those edges that take part. Serial, as nothing waits for it: on the CPU, layers
// leave out the others before.
template <class Parallel, class Found, class Scratch>
void coarsen_some(const Parallel& parallel, const Edges& edges, const int64_t* cluster, bool self_loops,
                  const int64_t* batch, const bool* takes_part, int64_t* slot, Found& found,
                  const Scratch& scratch) {
  report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
  int64_t* row = room<int64_t>(scratch, edges.count);
  int64_t* col = room<int64_t>(scratch, edges.count);
  int64_t* slot_of_some = slot ? room<int64_t>(scratch, edges.count) : nullptr;
  int64_t count = 0;
  for (int64_t e = 0; e < edges.count; ++e) {
    if (batch && batch[edges.row[e]] != batch[edges.col[e]]) report_joined_graphs(edges, batch);
    if (!takes_part[e]) continue;
    row[count] = edges.row[e];
    col[count++] = edges.col[e];
  }
  coarsen_all(parallel, Edges{row, col, count, edges.num_nodes}, cluster, self_loops, batch, slot_of_some,
              found, scratch);
  if (!slot) return;
  for (int64_t e = 0, next = 0; e < edges.count; ++e) slot[e] = takes_part[e] ? slot_of_some[next++] : -1;
}

// takes_part: of every edge, or null: all do. order: those of InnerEdges, or null.
template <class Parallel, class Found, class Scratch>
void coarsen_kernel(const Parallel& parallel, const Edges& edges, const int64_t* cluster, bool self_loops,
                    const int64_t* batch, const bool* takes_part, int64_t* slot, uint32_t* order,
                    Found& found, const Scratch& scratch) {
  if (takes_part) {
    coarsen_some(parallel, edges, cluster, self_loops, batch, takes_part, slot, found, scratch);
  } else {
    coarsen_all(parallel, edges, cluster, self_loops, batch, slot, found, scratch);
  }
  if (order) order_inner_edges(edges, cluster, takes_part, InnerEdges::of(order, edges.count));
}

template <class Parallel, class Scratch>
void coarsen_padded_kernel(const Parallel& parallel, const Edges& edges, const int64_t* cluster,
                           bool self_loops, const int64_t* batch, const bool* takes_part, int64_t* slot,
                           uint32_t* order, const Padded& out, const Scratch& scratch) {
  FoundInScratch<Scratch> found{scratch};
  coarsen_kernel(parallel, edges, cluster, self_loops, batch, takes_part, slot, order, found, scratch);
  if (!found.pad(out, slot, edges.count) && order) {
    std::fill_n(order, InnerEdges::size(edges.count, edges.num_nodes), uint32_t(-1));
  }
}

}  // namespace gpn::cpu
