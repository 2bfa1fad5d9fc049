// The distinct edges of a list after its nodes were renamed, sorted by row then column, on CUDA: one radix
// sort of (row, column) keys over the bits that ids can have, then a scan that numbers the first key of each
// run.
#pragma once

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "../core/errors.h"
#include "launch.cuh"

namespace gpn::cuda {

// Ids of this many bits leave room for one more bit in a key: the mark of a dropped edge, which sorts last.
constexpr int kMostIdBits = 31;

struct EdgeKeys {
  int id_bits;  // ids lie below 2^id_bits

  explicit EdgeKeys(int64_t num_ids) : id_bits(0) {
    while (int64_t(1) << id_bits < num_ids) ++id_bits;
  }
  GPN_HOST_DEVICE uint64_t key(int64_t row, int64_t col) const {
    return uint64_t(row) << id_bits | uint64_t(col);
  }
  GPN_HOST_DEVICE int64_t row(uint64_t key) const { return int64_t(key >> id_bits); }
  GPN_HOST_DEVICE int64_t col(uint64_t key) const { return int64_t(key & ((uint64_t(1) << id_bits) - 1)); }
  GPN_HOST_DEVICE uint64_t dropped() const { return uint64_t(1) << (2 * id_bits); }
  int key_bits() const { return 2 * id_bits + 1; }
};

// edge_id may be null.
// Registers: 40.
template <class View, class Id>
__global__ void make_keys(Edges edges, View view, EdgeKeys keys, uint64_t* key, Id* edge_id) {
  for (int64_t edge = thread_index(); edge < edges.count; edge += thread_count()) {
    const int64_t row = edges.row[edge], col = edges.col[edge];
    const bool fit = in_range(row, edges.num_nodes) && in_range(col, edges.num_nodes);
    key[edge] = fit ? view(keys, row, col, edges.num_nodes) : keys.dropped();
    if (edge_id) edge_id[edge] = Id(edge);
  }
}

// first[i] = whether key i is the first of its run and not that of a dropped edge.
// Registers: 32.
template <class Rank>
__global__ void flag_first(const uint64_t* key, int64_t count, EdgeKeys keys, Rank* first) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    first[i] = key[i] < keys.dropped() && (i == 0 || key[i] != key[i - 1]);
  }
}

// rank[i] = how many runs began up to and including key i. slot may be null. fits: null, or whether there is
// room; where there is none, no edge is kept.
// Registers: 40.
template <class Id>
__global__ void write_distinct(const uint64_t* key, const int64_t* rank, const Id* edge_id, int64_t count,
                               EdgeKeys keys, int64_t* row, int64_t* col, int64_t* slot, const bool* fits) {
  const uint64_t end = !fits || *fits ? keys.dropped() : 0;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const bool kept = key[i] < end;
    if (slot) slot[edge_id[i]] = kept ? rank[i] - 1 : -1;
    if (kept && (i == 0 || key[i] != key[i - 1])) {
      row[rank[i] - 1] = keys.row(key[i]);
      col[rank[i] - 1] = keys.col(key[i]);
    }
  }
}

// In two steps, because only after the first is the number of distinct edges known: *last_rank, on the
// device.
template <class Id>
class UniqueEdges {
 public:
  template <class View, class Scratch>
  UniqueEdges(const Launcher& launch, const Edges& edges, View view, int64_t num_ids, bool with_slot,
              const Scratch& scratch)
      : launch_(launch), count_(edges.count), keys_(num_ids) {
    if (count_ == 0) return;
    uint64_t* unsorted = room<uint64_t>(scratch, count_);
    key_ = room<uint64_t>(scratch, count_);
    Id* unsorted_id = with_slot ? room<Id>(scratch, count_) : nullptr;
    edge_id_ = with_slot ? room<Id>(scratch, count_) : nullptr;
    launch_(make_keys<View, Id>, count_, edges, view, keys_, unsorted, unsorted_id);

    const auto sort = [&](void* storage, size_t& bytes) {
      Launcher::check(with_slot ? cub::DeviceRadixSort::SortPairs(storage, bytes, unsorted, key_, unsorted_id,
                                                                  edge_id_, count_, 0, keys_.key_bits(),
                                                                  launch_.stream)
                                : cub::DeviceRadixSort::SortKeys(storage, bytes, unsorted, key_, count_, 0,
                                                                 keys_.key_bits(), launch_.stream));
    };
    size_t bytes = 0;
    sort(nullptr, bytes);
    sort(scratch(int64_t(bytes)), bytes);

    rank_ = reinterpret_cast<int64_t*>(unsorted);  // its keys are no longer needed
    launch_(flag_first<int64_t>, count_, key_, count_, keys_, rank_);
    bytes = 0;
    Launcher::check(cub::DeviceScan::InclusiveSum(nullptr, bytes, rank_, rank_, count_, launch_.stream));
    void* storage = scratch(int64_t(bytes));
    Launcher::check(cub::DeviceScan::InclusiveSum(storage, bytes, rank_, rank_, count_, launch_.stream));
  }

  // Null if there are no edges at all.
  const int64_t* last_rank() const { return count_ > 0 ? rank_ + count_ - 1 : nullptr; }

  // row, col: [distinct]; slot: [edges.count], null without slots.
  void write(int64_t* row, int64_t* col, int64_t* slot, const bool* fits = nullptr) const {
    launch_(write_distinct<Id>, count_, key_, rank_, edge_id_, count_, keys_, row, col, slot, fits);
  }

 private:
  const Launcher& launch_;
  int64_t count_;
  EdgeKeys keys_;
  uint64_t* key_ = nullptr;
  Id* edge_id_ = nullptr;
  int64_t* rank_ = nullptr;
};

// counts[0] = the number of distinct edges, counts[1] += 1: from the largest cluster to the number of them.
// Registers: 32.
template <class Count>
__global__ void finish_counts(const Count* last_rank, Count* counts) {
  if (thread_index() > 0) return;
  counts[0] = last_rank ? *last_rank : 0;
  counts[1] += 1;
}

inline void check_room_for_keys(int64_t num_nodes) {
  if (num_nodes > int64_t(1) << kMostIdBits) {
    fail("num_nodes: expected at most 2^", kMostIdBits, " on CUDA, got ", num_nodes);
  }
}

// Writes the distinct edges into what `found` makes, and returns the number of clusters. largest_cluster:
// called with a word on the device for the largest one, -1 at first. Waits for the device once, to read both
// numbers.
template <class View, class Largest, class Found, class Scratch>
int64_t distinct(const Launcher& launch, const Edges& edges, View view, Largest largest_cluster,
                 int64_t* slot, Found& found, const Scratch& scratch) {
  check_room_for_keys(edges.num_nodes);
  int64_t* counts = room<int64_t>(scratch, 2);
  launch(fill<int64_t>, 2, counts, 2, -1);
  largest_cluster(counts + 1);
  int64_t on_host[2];
  with_index(edges.count, [&](auto id) {
    const UniqueEdges<decltype(id)> unique(launch, edges, view, edges.num_nodes, slot != nullptr, scratch);
    launch(finish_counts<int64_t>, 1, unique.last_rank(), counts);
    launch.read(counts, on_host, 2);
    int64_t* row = found.new_edges(on_host[0]);
    unique.write(row, row + on_host[0], slot);
  });
  return on_host[1];
}

// As finish_counts; besides, *fits = whether there is room, and representative[c] = -1 for all c, or
// `num_nodes` where the smallest node of a cluster is still to be found. All of `edges` becomes -1.
// Registers: 40.
template <class Count>
__global__ void finish_padded(Padded out, const Count* last_rank, const Count* largest, Count num_nodes,
                              bool* fits) {
  const Count num_edges = last_rank ? *last_rank : 0, num_clusters = *largest + 1;
  const bool all_fit = num_edges <= out.num_edges && num_clusters <= out.num_clusters;
  for (int64_t i = thread_index(); i < 2 * out.num_edges; i += thread_count()) out.edges[i] = -1;
  for (int64_t c = thread_index(); c < out.num_clusters; c += thread_count()) {
    out.representative[c] = all_fit && c < num_clusters ? num_nodes : -1;
  }
  if (thread_index() > 0) return;
  out.count[0] = num_clusters;
  out.count[1] = num_edges;
  *fits = all_fit;
}

// Writes the distinct edges where there is room for them, without a wait. largest_cluster: as for distinct().
template <class View, class Largest, class Scratch>
void distinct_padded(const Launcher& launch, const Edges& edges, View view, Largest largest_cluster,
                     int64_t* slot, const Padded& out, const Scratch& scratch) {
  check_room_for_keys(edges.num_nodes);
  int64_t* largest = room<int64_t>(scratch, 1);
  bool* fits = room<bool>(scratch, 1);
  launch(fill<int64_t>, 1, largest, 1, -1);
  largest_cluster(largest);
  with_index(edges.count, [&](auto id) {
    const UniqueEdges<decltype(id)> unique(launch, edges, view, edges.num_nodes, slot != nullptr, scratch);
    launch(finish_padded<int64_t>, std::max({int64_t(1), 2 * out.num_edges, out.num_clusters}), out,
           unique.last_rank(), largest, edges.num_nodes, fits);
    unique.write(out.edges, out.edges + out.num_edges, slot, fits);
  });
}

}  // namespace gpn::cuda
