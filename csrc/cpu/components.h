// Connected components on the CPU: union-find from several threads, then labels in the order of each component's smallest node.
#pragma once

#include "../core/union_find.h"
#include "dominant.h"

namespace gpn::cpu {

// How far ahead of its use a random word is fetched.
constexpr int64_t kAhead = 24;

// Joins v and neighbour[v] for every v; neighbour[v] < 0 means none. parent: scratch of num_nodes, out: the forest.
template <class Parallel, class Node>
void connect_choices(const Parallel& parallel, const int64_t* neighbour, int64_t num_nodes, Node* parent) {
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) parent[v] = first_parent(Node(v), neighbour[v]);
  });
  // What is left are choices of a larger node, less those of mutual pairs, of which the larger node has just become the child. They
  // are gathered without branches first: few remain, and which ones cannot be guessed.
  for_each_piece(parallel, num_nodes, [&](int64_t begin, int64_t end) {
    Node left[kBlock];
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t stop = std::min(block + kBlock, end);
      for (int64_t v = block; v < stop; ++v) prefetch(parent + std::max(neighbour[v], v));
      int64_t count = 0;
      for (int64_t v = block; v < stop; ++v) {
        const int64_t larger = std::max(neighbour[v], v);
        left[count] = Node(v);
        count += (larger != v) & (atomic_load(parent + larger) != v);
      }
      for (int64_t i = 0; i < count; ++i) hook(parent, left[i], Node(neighbour[left[i]]));
    }
  });
}

// Joins the ends of every edge. False if an id is out of range.
template <class Parallel, class Node>
bool connect_edges(const Parallel& parallel, const Edges& edges, Node* parent) {
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) parent[v] = Node(v);
  });
  std::atomic<bool> bad = false;
  for_each_piece(parallel, edges.count, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t count = std::min(kBlock, end - block);
      const int64_t* row = edges.row + block;
      const int64_t* col = edges.col + block;
      if (!ids_fit(row, count, edges.num_nodes) || !ids_fit(col, count, edges.num_nodes)) {
        bad = true;
        return;
      }
      for (int64_t i = 0; i < count; ++i) prefetch(parent + col[i]);
      for (int64_t i = 0; i < count; ++i) hook(parent, Node(row[i]), Node(col[i]));
    }
  });
  return !bad;
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
  // Parents are smaller than their children, so in ascending order a node's parent mostly has its label already and the look-up is
  // one step. A node is written by its own thread alone, and only with its final label.
  parallel(pieces.tasks, [&](int64_t t) {
    const Node end = Node(pieces.end(t));
    for (Node v = Node(pieces.begin(t)); v < end; ++v) {
      if (v + kAhead < end) prefetch(parent + std::max<Node>(parent[v + kAhead], 0));
      const Node marked = label_of(parent, v);
      atomic_store(parent + v, marked);
      label[v] = ~marked;
    }
  });
}

}  // namespace gpn::cpu
