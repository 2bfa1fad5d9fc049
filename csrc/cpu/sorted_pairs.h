// The undirected edges of sorted edges that have their reverses, on the CPU.
#pragma once

#include "../core/errors.h"
#include "blocks.h"
#include "parallel.h"

namespace gpn::cpu {

// Runs f(e, r) for the first `count` edges e of a list that is sorted by row then column, each there once,
// where r is the place of its reverse, -1 if it is not there. As rows ascend, so do the columns that are
// asked for in a row, and one pass finds them all. next: scratch, a word a node and one more.
template <class F>
void for_each_reverse(const Edges& edges, int64_t count, int64_t* next, const F& f) {
  const auto fits = [&](int64_t id) { return uint64_t(id) < uint64_t(edges.num_nodes); };
  std::fill(next, next + edges.num_nodes + 1, count);
  for (int64_t e = count - 1; e >= 0; --e) {
    if (fits(edges.row[e])) next[edges.row[e]] = e;
  }
  for (int64_t e = 0; e < count; ++e) {
    if (!fits(edges.row[e]) || !fits(edges.col[e])) {
      f(e, int64_t(-1));
      continue;
    }
    int64_t& at = next[edges.col[e]];
    while (at < count && edges.row[at] == edges.col[e] && edges.col[at] < edges.row[e]) ++at;
    const bool found = at < count && edges.row[at] == edges.col[e] && edges.col[at] == edges.row[e];
    f(e, found ? at : -1);
  }
}

template <class Parallel, class Scratch>
void sorted_pairs_kernel(const Parallel&, const Edges& edges, int64_t num_pairs, int64_t* pairs,
                         int64_t* slot, const Scratch& scratch) {
  if (!ids_fit(edges.row, edges.count, edges.num_nodes) ||
      !ids_fit(edges.col, edges.count, edges.num_nodes)) {
    report_bad_edges(edges);
  }
  for (int64_t e = 1; e < edges.count; ++e) {
    if (edges.row[e - 1] > edges.row[e] ||
        (edges.row[e - 1] == edges.row[e] && edges.col[e - 1] >= edges.col[e])) {
      fail("edge_index: expected edges sorted by row then column, each once, got others at edge_index[:, ", e,
           "]");
    }
  }
  int64_t found = 0, one_way = -1;
  for_each_reverse(edges, edges.count, room<int64_t>(scratch, edges.num_nodes + 1),
                   [&](int64_t e, int64_t reverse) {
                     if (reverse < 0) {
                       one_way = e;
                     } else if (edges.row[e] > edges.col[e]) {
                       slot[e] = slot[reverse];  // an earlier one
                     } else {
                       slot[e] = found;
                       if (found < num_pairs) {
                         pairs[found] = edges.row[e];
                         pairs[num_pairs + found] = edges.col[e];
                       }
                       ++found;
                     }
                   });
  if (one_way >= 0) {
    fail("edge_index: expected the reverse of every edge, got none of edge_index[:, ", one_way, "]");
  }
  if (found != num_pairs) fail("num_pairs: expected ", found, ", got ", num_pairs);
}

}  // namespace gpn::cpu
