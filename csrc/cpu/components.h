// Connected components on the CPU: union-find from several threads, then labels in the order of each
// component's smallest node.
#pragma once

#include "../core/union_find.h"
#include "dominant.h"

namespace gpn::cpu {

// Joins v and neighbour[v] for every v; neighbour[v] < 0 means none. parent: scratch of num_nodes, out: the
// forest.
template <class Parallel, class Choice, class Node>
void connect_choices(const Parallel& parallel, const Choice* neighbour, int64_t num_nodes, Node* parent) {
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) parent[v] = first_parent(Node(v), Node(neighbour[v]));
  });
  // What is left are choices of a larger node, less those of mutual pairs, of which the larger node has just
  // become the child. They are gathered without branches first: few remain, and which ones cannot be guessed.
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    Node left[kBlock];
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t stop = std::min(block + kBlock, end);
      for (int64_t v = block; v < stop; ++v) prefetch(parent + std::max<int64_t>(neighbour[v], v));
      int64_t count = 0;
      for (int64_t v = block; v < stop; ++v) {
        const int64_t larger = std::max<int64_t>(neighbour[v], v);
        left[count] = Node(v);
        count += (larger != v) & (atomic_load(parent + larger) != v);
      }
      for (int64_t i = 0; i < count; ++i) hook(parent, left[i], Node(neighbour[left[i]]));
    }
  });
}

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

}  // namespace gpn::cpu
