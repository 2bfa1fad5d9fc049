// The distinct edges of a list after its nodes were renamed, sorted by row then column, on CUDA: one radix
// sort of (row, column) keys over the bits that ids can have, then a scan that numbers the first key of each
// run.
#pragma once

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "../core/errors.h"
#include "largest.cuh"
#include "scan.cuh"

namespace gpn::cuda {

// Ids of this many bits leave room for one more bit in a key: the mark of an edge that is kept.
constexpr int kMostIdBits = 31;

// In their order: edges inside clusters, by cluster; edges that are in nothing; edges that are kept.
struct EdgeKeys {
  int id_bits;  // ids lie below 2^id_bits

  explicit EdgeKeys(int64_t num_ids) : id_bits(1) {
    while (int64_t(1) << id_bits < num_ids) ++id_bits;
  }
  GPN_HOST_DEVICE uint64_t key(int64_t row, int64_t col) const {
    return first_kept() | uint64_t(row) << id_bits | uint64_t(col);
  }
  GPN_HOST_DEVICE int64_t row(uint64_t key) const { return int64_t((key ^ first_kept()) >> id_bits); }
  GPN_HOST_DEVICE int64_t col(uint64_t key) const { return int64_t(key & (first_outside() - 1)); }
  GPN_HOST_DEVICE uint64_t first_kept() const { return uint64_t(1) << (2 * id_bits); }
  GPN_HOST_DEVICE uint64_t inside(int64_t cluster) const { return uint64_t(cluster); }
  GPN_HOST_DEVICE uint64_t first_outside() const { return uint64_t(1) << id_bits; }
  GPN_HOST_DEVICE uint64_t in_nothing() const { return first_kept() - 1; }
  int key_bits() const { return 2 * id_bits + 1; }
};

// Clusters, where the renamed nodes are some.
struct Clusters {
  const int64_t* cluster;   // [num_nodes], or null
  int64_t num_nodes;        // no cluster has a larger number
  int64_t* representative;  // [room] the smallest node of each, at most what stands there
  int64_t room;
};

// Also finds out about the clusters: counts[0], 0 at first, becomes the number of them. edge_id may be null.
// Registers: 64.
template <class View, class Id>
__global__ void make_keys(Edges edges, View view, EdgeKeys keys, uint64_t* key, Id* edge_id,
                          Clusters clusters, int64_t* counts) {
  for (int64_t edge = thread_index(); edge < edges.count; edge += thread_count()) {
    const int64_t row = edges.row[edge], col = edges.col[edge];
    const bool fit = in_range(row, edges.num_nodes) && in_range(col, edges.num_nodes);
    key[edge] = fit ? view(keys, row, col, edge, edges.num_nodes) : keys.in_nothing();
    if (edge_id) edge_id[edge] = Id(edge);
  }
  if (!clusters.cluster) return;
  int64_t most = -1;
  for (int64_t v = thread_index(); v < clusters.num_nodes; v += thread_count()) {
    const int64_t c = clusters.cluster[v];
    if (!fits(c, clusters.num_nodes)) {
      __assert_fail("cluster: ids from 0 to num_nodes - 1", __FILE__, __LINE__, "gpn::cuda");
      continue;
    }
    if (fits(c, clusters.room)) atomic_lower(clusters.representative + c, v);
    if (c > most) most = c;
  }
  raise_from_warp(most + 1, counts);
}

struct FirstOfRun {
  const uint64_t* key;
  uint64_t first_kept;
  __device__ int64_t operator()(int64_t i) const {
    return key[i] >= first_kept && (i == 0 || key[i] != key[i - 1]);
  }
};

// rank counts the runs that began up to and including key i. What is null is not wanted.
template <class Id>
struct StoreRun {
  FirstOfRun first;
  EdgeKeys keys;
  int64_t count;
  const Id* edge_id;   // [count]
  uint64_t* distinct;  // [count]
  int64_t* slot;       // [count]
  InnerEdges inner;
  int64_t* counts;
  bool has_clusters;
  __device__ void operator()(int64_t i, int64_t rank) const {
    const uint64_t key = first.key[i];
    if (first(i)) distinct[rank - 1] = key;
    if (slot) slot[edge_id[i]] = key >= keys.first_kept() ? rank - 1 : -1;
    if (inner.edge) {
      const bool inside = key < keys.first_outside();
      inner.cluster[i] = inside ? uint32_t(key) : uint32_t(-1);
      inner.edge[i] = inside ? uint32_t(edge_id[i]) : uint32_t(-1);
    }
    if (i + 1 < count) return;
    counts[1] = rank;
    if (!has_clusters) counts[0] = 0;
  }
};

// representative[c] = num_nodes, which no cluster has; no clusters and no edges so far.
// Registers: 32.
template <class Node>
__global__ void start_counts(Clusters clusters, Node* counts) {
  for (int64_t c = thread_index(); c < clusters.room; c += thread_count()) {
    clusters.representative[c] = clusters.num_nodes;
  }
  if (thread_index() < 2) counts[thread_index()] = 0;
}

// Takes the keys apart and looks at the clusters, where all have room; where not, there is nothing but -1.
// Registers: 48.
template <class Key>
__global__ void write_distinct(const Key* distinct, EdgeKeys keys, const int64_t* counts, Clusters clusters,
                               Padded out, int64_t* slot, InnerEdges inner, int64_t count) {
  const int64_t num_clusters = counts[0], num_edges = counts[1];
  const bool all_fit = num_edges <= out.num_edges && num_clusters <= out.num_clusters;
  for (int64_t i = thread_index(); i < out.num_edges; i += thread_count()) {
    const bool is_edge = all_fit && i < num_edges;
    out.edges[i] = is_edge ? keys.row(distinct[i]) : -1;
    out.edges[out.num_edges + i] = is_edge ? keys.col(distinct[i]) : -1;
  }
  for (int64_t c = thread_index(); c < out.num_clusters; c += thread_count()) {
    const bool is_cluster = all_fit && c < num_clusters;
    const int64_t node = is_cluster ? clusters.representative[c] : -1;
    if (node == clusters.num_nodes) {
      __assert_fail("cluster: every id from 0 to the largest", __FILE__, __LINE__, "gpn::cuda");
    }
    out.representative[c] = node;
  }
  for (int64_t c = thread_index(); inner.begin && c <= clusters.num_nodes; c += thread_count()) {
    int64_t low = 0, high = all_fit ? count : 0;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const bool below = inner.cluster[middle] < uint32_t(c);
      (below ? low : high) = below ? middle + 1 : middle;
    }
    inner.begin[c] = all_fit ? uint32_t(low) : uint32_t(-1);
  }
  if (all_fit) return;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    if (slot) slot[i] = -1;
    if (inner.edge) inner.cluster[i] = inner.edge[i] = uint32_t(-1);
  }
}

// In two steps, because only after the first are the numbers of clusters and distinct edges known: counts[0]
// and counts[1], on the device.
template <class Id>
class UniqueEdges {
 public:
  // slot: null, or room for all edges. inner: nulls, or room.
  template <class View, class Scratch>
  UniqueEdges(const Launcher& launch, const Edges& edges, View view, const Clusters& clusters, int64_t* slot,
              const InnerEdges& inner, int64_t* counts, const Scratch& scratch)
      : launch_(launch),
        count_(edges.count),
        keys_(edges.num_nodes),
        clusters_(clusters),
        slot_(slot),
        inner_(inner),
        counts_(counts) {
    if (edges.num_nodes > int64_t(1) << kMostIdBits) {
      fail("num_nodes: expected at most 2^", kMostIdBits, " on CUDA, got ", edges.num_nodes);
    }
    const bool has_clusters = clusters.cluster != nullptr;
    if (has_clusters || count_ == 0) {
      launch_(start_counts<int64_t>, std::max<int64_t>(clusters.room, 2), clusters, counts);
    }
    const bool with_id = slot || inner.edge;
    uint64_t* unsorted = room<uint64_t>(scratch, count_);
    uint64_t* key = room<uint64_t>(scratch, count_);
    Id* unsorted_id = with_id ? room<Id>(scratch, count_) : nullptr;
    Id* edge_id = with_id ? room<Id>(scratch, count_) : nullptr;
    launch_(make_keys<View, Id>, std::max(count_, has_clusters ? clusters.num_nodes : 0), edges, view, keys_,
            unsorted, unsorted_id, clusters, counts);
    if (count_ == 0) return;

    const auto sort = [&](void* storage, size_t& bytes) {
      Launcher::check(with_id ? cub::DeviceRadixSort::SortPairs(storage, bytes, unsorted, key, unsorted_id,
                                                                edge_id, count_, 0, keys_.key_bits(),
                                                                launch_.stream)
                              : cub::DeviceRadixSort::SortKeys(storage, bytes, unsorted, key, count_, 0,
                                                               keys_.key_bits(), launch_.stream));
    };
    size_t bytes = 0;
    sort(nullptr, bytes);
    sort(scratch(int64_t(bytes)), bytes);

    distinct_ = unsorted;  // its keys are no longer needed
    const FirstOfRun first{key, keys_.first_kept()};
    scan<int64_t>(launch_, count_, first,
                  StoreRun<Id>{first, keys_, count_, edge_id, distinct_, slot, inner, counts, has_clusters},
                  scratch);
  }

  // out: room for all, or for what it turns out to be.
  void write(const Padded& out) const {
    const int64_t begins = inner_.begin ? clusters_.num_nodes + 1 : 1;
    launch_(write_distinct<uint64_t>, std::max({begins, out.num_edges, out.num_clusters}), distinct_, keys_,
            counts_, clusters_, out, slot_, inner_, count_);
  }

 private:
  const Launcher& launch_;
  int64_t count_;
  EdgeKeys keys_;
  Clusters clusters_;
  int64_t* slot_;
  InnerEdges inner_;
  int64_t* counts_;
  uint64_t* distinct_ = nullptr;
};

// Writes the distinct edges and the clusters into what `found` makes. Waits for the device once, to read how
// many they are. order: those of InnerEdges, or null.
template <class View, class Found, class Scratch>
void distinct(const Launcher& launch, const Edges& edges, View view, const int64_t* cluster, int64_t* slot,
              uint32_t* order, Found& found, const Scratch& scratch) {
  const int64_t room_for_clusters = cluster ? edges.num_nodes : 0;
  const Clusters clusters{cluster, edges.num_nodes, room<int64_t>(scratch, room_for_clusters),
                          room_for_clusters};
  int64_t* counts = room<int64_t>(scratch, 2);
  int64_t on_host[2];
  with_index(edges.count, [&](auto id) {
    const UniqueEdges<decltype(id)> unique(launch, edges, view, clusters, slot,
                                           InnerEdges::of(order, edges.count), counts, scratch);
    launch.read(counts, on_host, 2);
    Padded out{found.new_edges(on_host[1]), on_host[1], nullptr, cluster ? on_host[0] : 0, nullptr};
    if (cluster) out.representative = found.new_representative(on_host[0]);
    unique.write(out);
  });
}

// The same where there is room for them, without a wait.
template <class View, class Scratch>
void distinct_padded(const Launcher& launch, const Edges& edges, View view, const int64_t* cluster,
                     int64_t* slot, uint32_t* order, const Padded& out, const Scratch& scratch) {
  const Clusters clusters{cluster, edges.num_nodes, out.representative, out.num_clusters};
  with_index(edges.count, [&](auto id) {
    const UniqueEdges<decltype(id)> unique(launch, edges, view, clusters, slot,
                                           InnerEdges::of(order, edges.count), out.count, scratch);
    unique.write(out);
  });
}

}  // namespace gpn::cuda
