// What the operators are given, on raw pointers.
#pragma once

#include <limits>

#include "platform.h"

namespace gpn {

// Whether 32 bits number `count` things, and one more.
inline bool narrow_index(int64_t count) { return count < std::numeric_limits<uint32_t>::max(); }

// Runs f with the narrowest unsigned integer that does.
template <class F>
void with_index(int64_t count, const F& f) {
  if (narrow_index(count)) {
    f(uint32_t());
  } else {
    f(uint64_t());
  }
}

// More nodes than any memory holds; sizes in bytes still fit 64 bits.
constexpr int64_t kMostNodesLog2 = 58;
constexpr int64_t kMostNodes = int64_t(1) << kMostNodesLog2;

struct Edges {
  const int64_t* row;  // [count] the node that chooses
  const int64_t* col;  // [count] the chosen neighbour
  int64_t count;
  int64_t num_nodes;
};

// Room for distinct edges, and for clusters, if any are asked for. What is not needed becomes -1; all of it,
// if there is too little.
struct Padded {
  int64_t* edges;  // [2, num_edges]
  int64_t num_edges;
  int64_t* representative;  // [num_clusters]
  int64_t num_clusters;
  int64_t* count;  // [2] how many clusters and edges there are
};

// Which nodes of a batch are wanted: those of wanted graphs.
struct Wanted {
  const int64_t* graphs;  // [num_graphs] not 0: wanted
  int64_t num_graphs;
  const int64_t* batch;  // [num_nodes] the graph of every node; out of range: none
  GPN_HOST_DEVICE int64_t operator()(int64_t v) const {
    return uint64_t(batch[v]) < uint64_t(num_graphs) && graphs[batch[v]] != 0;
  }
};

// Wanted nodes come first, the others after them, each in their order. so_far: how many up to and including v
// are wanted; num_wanted: how many of all.
GPN_HOST_DEVICE void place_node(const Wanted& wanted, int64_t v, int64_t so_far, int64_t num_nodes,
                                int64_t num_wanted, int64_t* order, int64_t* number) {
  const int64_t place = wanted(v) ? so_far - 1 : num_wanted + v - so_far;
  number[v] = place;
  if (uint64_t(place) < uint64_t(num_nodes)) order[place] = v;  // if num_wanted is right
}

// The edges inside clusters, by cluster, ascending in each; after them -1.
struct InnerEdges {
  uint32_t* cluster;  // [num_edges] ascending
  uint32_t* edge;     // [num_edges]
  uint32_t* begin;    // [num_nodes + 1] how many are in clusters below this one

  static int64_t size(int64_t num_edges, int64_t num_nodes) { return 2 * num_edges + num_nodes + 1; }
  // Of a list of that size; all null, if there is none.
  static InnerEdges of(uint32_t* all, int64_t num_edges) {
    if (all == nullptr) return {nullptr, nullptr, nullptr};
    return {all, all + num_edges, all + 2 * num_edges};
  }
};

// Two nodes each, in no order.
struct Pairs {
  const int64_t* first;   // [count]
  const int64_t* second;  // [count]
  int64_t count;
  int64_t num_nodes;
};

// Rows of `width` values, and the cluster of each. A negative cluster: the row is in none.
template <class Id = int64_t>
struct Segments {
  const Id* cluster;  // [rows]
  int64_t rows;
  int64_t width;
  int64_t num_clusters;
};

}  // namespace gpn
