// Connected components on the CPU: union-find from several threads, then labels in the order of each
// component's smallest node.
#pragma once

#include <atomic>
#include <limits>
#include <vector>

#include "../core/errors.h"
#include "../core/union_find.h"
#include "blocks.h"
#include "parallel.h"

namespace gpn::cpu {

// Whether all ids of the list lie in [0, num_nodes).
template <class Parallel>
bool all_ids_fit(const Parallel& parallel, const Edges& edges) {
  std::atomic<bool> fit = true;
  for_each_piece(parallel, edges.count, [&](int64_t begin, int64_t end) {
    for (const int64_t* ids : {edges.row, edges.col}) {
      if (!ids_fit(ids + begin, end - begin, edges.num_nodes)) fit = false;
    }
  });
  return fit;
}

// Joins the ends of every edge. All ids must fit.
template <class Parallel, class Node>
void connect_edges(const Parallel& parallel, const Edges& edges, Node* parent) {
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) parent[v] = Node(v);
  });
  for_each_piece(parallel, edges.count, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t stop = std::min(block + kBlock, end);
      for (int64_t e = block; e < stop; ++e) prefetch(parent + edges.col[e]);
      for (int64_t e = block; e < stop; ++e) hook(parent, Node(edges.row[e]), Node(edges.col[e]));
    }
  });
}

// label[v] = rank of v's root among all roots. Overwrites the forest.
template <class Parallel, class Node>
void label_components(const Parallel& parallel, Node* parent, int64_t num_nodes, int64_t* label) {
  const Pieces pieces = cut(parallel, num_nodes);
  std::vector<int64_t> roots(pieces.tasks + 1, 0);
  parallel(pieces.tasks, [&](int64_t t) {
    Node count = 0;
    for (Node v = Node(pieces.begin(t)); v < pieces.end(t); ++v) count += parent[v] == v;
    roots[t + 1] = count;
  });
  for (int64_t t = 0; t < pieces.tasks; ++t) roots[t + 1] += roots[t];
  parallel(pieces.tasks, [&](int64_t t) {
    Node next = Node(roots[t]);
    for (Node v = Node(pieces.begin(t)); v < pieces.end(t); ++v) {
      const Node root = parent[v] == v;
      parent[v] ^= (parent[v] ^ ~next) & -root;  // ~next at a root, and no branch that could be guessed wrong
      next += root;
    }
  });
  // Parents are smaller than their children, so in ascending order a node's parent mostly has its mark
  // already and the look-up is one step.
  parallel(pieces.tasks, [&](int64_t t) {
    const Node end = Node(pieces.end(t));
    for (Node v = Node(pieces.begin(t)); v < end; ++v) {
      if (v + kAhead < end) prefetch(parent + std::max<Node>(parent[v + kAhead], 0));
      label[v] = ~settle(parent, v);
    }
  });
}

// Runs f with scratch for a forest over num_nodes nodes, in the narrowest type that holds them.
template <class Scratch, class F>
void with_forest(int64_t num_nodes, const Scratch& scratch, const F& f) {
  if (num_nodes <= std::numeric_limits<int32_t>::max()) {
    f(room<int32_t>(scratch, num_nodes));
  } else {
    f(room<int64_t>(scratch, num_nodes));
  }
}

template <class Parallel, class Scratch>
void components_kernel(const Parallel& parallel, const Edges& edges, int64_t* label, const Scratch& scratch) {
  if (!all_ids_fit(parallel, edges)) report_bad_edges(edges);
  with_forest(edges.num_nodes, scratch, [&](auto* parent) {
    connect_edges(parallel, edges, parent);
    label_components(parallel, parent, edges.num_nodes, label);
  });
}

// The largest id plus one.
template <class Parallel, class Scratch>
int64_t count_nodes(const Parallel& parallel, const int64_t* row, const int64_t* col, int64_t count,
                    const Scratch&) {
  const Pieces pieces = cut(parallel, count);
  std::vector<int64_t> largest(pieces.tasks, -1);
  std::atomic<bool> bad = false;
  parallel(pieces.tasks, [&](int64_t t) {
    int64_t most = -1, signs = 0;
    for (int64_t i = pieces.begin(t); i < pieces.end(t); ++i) {
      most = std::max(most, std::max(row[i], col[i]));
      signs |= row[i] | col[i];
    }
    largest[t] = most;
    if (signs < 0 || most >= kMostNodes) bad = true;
  });
  if (bad) report_uncountable(row, col, count);
  return *std::max_element(largest.begin(), largest.end()) + 1;
}

}  // namespace gpn::cpu
