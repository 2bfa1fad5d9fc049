// The dominant edge of every node, on CUDA: one 64-bit maximum a run of equal rows inside a warp.
#pragma once

#include "../core/atomic.h"
#include "../core/dominance.h"
#include "launch.cuh"

namespace gpn::cuda {

// The maximum over the lanes from this one to the end of its run of equal rows. Every lane of the warp takes
// part.
__device__ inline uint64_t highest_in_run(int64_t row, uint64_t key, int lane) {
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int64_t other_row = __shfl_down_sync(0xffffffffu, row, offset);
    const uint64_t other_key = __shfl_down_sync(0xffffffffu, key, offset);
    // Equal rows with others between them may meet here too: a maximum does not mind.
    if (lane + offset < kWarp && other_row == row && other_key > key) key = other_key;
  }
  return key;
}

// Raises best[row] to the key of each edge, one atomic a run. `key_of(code, edge)` makes the key.
template <class Score, class KeyOf>
__device__ void raise_runs(const Edges& edges, const Score* scores, uint64_t* best, KeyOf key_of) {
  const int lane = threadIdx.x % kWarp;
  bool all_fit = true;  // asserted after the loop: the call would cost the loop registers
  // The bound is the warp's, not the lane's: all lanes stay for the shuffles.
  for (int64_t first = thread_index() - lane; first < edges.count; first += thread_count()) {
    // Lanes past the end load the last edge again: so the three loads wait for no branch and for none of
    // each other.
    const bool is_edge = first + lane < edges.count;
    const int64_t edge = is_edge ? first + lane : edges.count - 1;
    int64_t row = edges.row[edge];
    const int64_t col = edges.col[edge];
    const Score score = scores[edge];
    const bool fit = fits(row, edges.num_nodes) && fits(col, edges.num_nodes);
    all_fit = all_fit && fit;
    const bool counts = is_edge && fit;
    row = counts ? row : -1;
    uint64_t key = counts ? key_of(code_of(score), edge) : 0;
    const int64_t row_before = __shfl_up_sync(0xffffffffu, row, 1);
    const bool starts_run = row >= 0 && (lane == 0 || row_before != row);
    key = highest_in_run(row, key, lane);
    if (starts_run) atomic_raise(best + row, key);
  }
  assert_fits(all_fit);
}

// Registers: 32.
template <class Score>
__global__ void raise_packed(Edges edges, const Score* scores, int64_t first_edge, uint64_t* keys) {
  raise_runs(edges, scores, keys,
             [=](uint32_t code, int64_t edge) { return packed_key(code, uint64_t(first_edge + edge)); });
}

// Where what a node keeps goes.
struct StoreKept {
  int64_t* kept;
  __device__ void operator()(int64_t v, int64_t value) const { kept[v] = value; }
};

// Registers: 32.
template <class Keep, class Store>
__global__ void decode_packed(const uint64_t* keys, int64_t num_nodes, Keep keep, int64_t first_edge,
                              Store store) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) {
    const uint64_t key = keys[v];
    store(v, key == 0 ? -1 : keep(int64_t(packed_edge(key)) - first_edge));
  }
}

// Registers: 40.
template <class Score>
__global__ void __maxnreg__(40) raise_wide(Edges edges, const Score* scores, uint64_t* best) {
  raise_runs(edges, scores, best, [](uint64_t code, int64_t) { return code; });
}

// Among the edges that reach their row's best score, the lowest id.
// Registers: 40.
template <class Score>
__global__ void lower_ids(Edges edges, const Score* scores, const uint64_t* best, int64_t first_edge,
                          int64_t* ids) {
  for (int64_t edge = thread_index(); edge < edges.count; edge += thread_count()) {
    const int64_t row = edges.row[edge];
    if (!in_range(row, edges.num_nodes) || !in_range(edges.col[edge], edges.num_nodes)) continue;
    if (best[row] == code_of(scores[edge])) atomic_lower(ids + row, first_edge + edge);
  }
}

// Registers: 32.
template <class Keep, class Store>
__global__ void decode_wide(const int64_t* ids, int64_t num_nodes, Keep keep, int64_t first_edge,
                            Store store) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) {
    store(v, ids[v] == kNoEdge ? -1 : keep(ids[v] - first_edge));
  }
}

// store(v, keep(dominant edge of v)), -1 where v has none. keys: [num_nodes] zeros; of v, it may be
// overwritten when v is stored. `scratch(bytes)` gives device memory that outlives the launches.
template <class Score, class Keep, class Store, class Scratch>
void dominant(const Launcher& launch, const Edges& edges, const Score* scores, Keep keep, Form form,
              int64_t first_edge, uint64_t* keys, Store store, const Scratch& scratch) {
  const int64_t num_nodes = edges.num_nodes;
  if constexpr (sizeof(Code<Score>) == 4) {
    if (form != Form::kWide && first_edge + edges.count <= kPackedEdges) {
      launch(raise_packed<Score>, edges.count, edges, scores, first_edge, keys);
      launch(decode_packed<Keep, Store>, num_nodes, keys, num_nodes, keep, first_edge, store);
      return;
    }
  }
  int64_t* ids = room<int64_t>(scratch, num_nodes);
  launch(fill<int64_t>, num_nodes, ids, num_nodes, kNoEdge);
  launch(raise_wide<Score>, edges.count, edges, scores, keys);
  launch(lower_ids<Score>, edges.count, edges, scores, keys, first_edge, ids);
  launch(decode_wide<Keep, Store>, num_nodes, ids, num_nodes, keep, first_edge, store);
}

template <class Score, class Scratch>
void dominant_kernel(const Launcher& launch, const Edges& edges, const Score* scores, Form form,
                     int64_t first_edge, int64_t* edge, const Scratch& scratch) {
  uint64_t* keys = reinterpret_cast<uint64_t*>(edge);  // one buffer holds the keys and then the edges
  launch(fill<uint64_t>, edges.num_nodes, keys, edges.num_nodes, 0);
  dominant(launch, edges, scores, KeepEdge{first_edge}, form, first_edge, keys, StoreKept{edge}, scratch);
}

}  // namespace gpn::cuda
