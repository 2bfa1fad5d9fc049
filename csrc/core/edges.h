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
