// Errors that name the argument, what was expected and what came. A kernel that reads values on the CPU only
// notes that one is bad; the functions here then look for the first.
#pragma once

#include <sstream>
#include <stdexcept>

#include "dominance.h"

namespace gpn {

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

inline void report_bad_ends(const char* name, const int64_t* first, const int64_t* second, int64_t count,
                            int64_t num_nodes) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t end = 0; end < 2; ++end) {
      const int64_t id = end ? second[i] : first[i];
      if (id < 0 || id >= num_nodes) {
        fail(name, ": expected node ids from 0 to num_nodes - 1 = ", num_nodes - 1, ", got ", id, " at ",
             name, "[", end, ", ", i, "]");
      }
    }
  }
}

[[noreturn]] inline void report_bad_edges(const Edges& edges) {
  report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
  fail("edge_index: changed while it was read");
}

// Where num_nodes is to be found from the edges: an id below 0, or one plus which no number of nodes is.
[[noreturn]] inline void report_uncountable(const int64_t* row, const int64_t* col, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t end = 0; end < 2; ++end) {
      const int64_t id = end ? col[i] : row[i];
      if (id < 0) {
        fail("edge_index: expected non-negative node ids, got ", id, " at edge_index[", end, ", ", i, "]");
      }
      if (id >= kMostNodes) {
        fail("edge_index: expected node ids below 2^", kMostNodesLog2, ", got ", id, " at edge_index[", end,
             ", ", i, "]");
      }
    }
  }
  fail("edge_index: changed while it was read");
}

// Ids before scores.
template <class Score>
[[noreturn]] void report_bad_values(const Edges& edges, const Score* scores) {
  report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
  for (int64_t i = 0; i < edges.count; ++i) {
    if (code_of(scores[i]) == kNanCode) fail("scores: expected no NaN, got NaN at scores[", i, "]");
  }
  fail("edge_index: changed while it was read");
}

// `what` is the name of `size`.
[[noreturn]] inline void report_bad_clusters(const int64_t* cluster, int64_t count, int64_t lowest,
                                             const char* what, int64_t size) {
  for (int64_t i = 0; i < count; ++i) {
    if (cluster[i] < lowest || cluster[i] >= size) {
      fail("cluster: expected ids from ", lowest, " to ", what, " - 1 = ", size - 1, ", got ", cluster[i],
           " at cluster[", i, "]");
    }
  }
  fail("cluster: changed while it was read");
}

[[noreturn]] inline void report_joined_graphs(const Edges& edges, const int64_t* batch) {
  for (int64_t i = 0; i < edges.count; ++i) {
    const int64_t from = batch[edges.row[i]], to = batch[edges.col[i]];
    if (from != to) {
      fail("batch: expected every edge inside one graph, got an edge from graph ", from, " to graph ", to,
           " at edge_index[:, ", i, "]");
    }
  }
  fail("batch: changed while it was read");
}

}  // namespace gpn
