// Lock-free union-find on an array of parents, int32 or int64. Invariant: parent[v] <= v at all times, so
// there are no cycles, and a component's root ends up as its smallest node whatever the schedule.
#pragma once

#include <type_traits>

#include "atomic.h"

namespace gpn {

// Joins the components of u and v: walks up from both ends at once and puts whichever end has the larger
// parent below the other's parent. That hooks a root, and is done, or moves a child closer to its root (Rem's
// splice), which leaves its former parent to be joined. Other threads may hook meanwhile.
template <class Node>
GPN_HOST_DEVICE void hook(Node* parent, Node u, Node v) {
  Node above_u = atomic_load(parent + u);
  Node above_v = atomic_load(parent + v);
  while (above_u != above_v) {
    if (above_u < above_v) {
      const Node low = u, above_low = above_u;
      u = v, above_u = above_v;
      v = low, above_v = above_low;
    }
    if (compare_and_swap(parent + u, above_u, above_v)) {
      if (above_u == u) return;
      u = above_u;
    }
    above_u = atomic_load(parent + u);
  }
}

// A node before any hook that knows one neighbour: below it if that is smaller, else a root. neighbour < 0:
// none.
template <class Node>
GPN_HOST_DEVICE Node first_parent(Node v, Node neighbour) {
  using Unsigned =
      std::make_unsigned_t<Node>;  // in which 'none' is larger than any node, and this is a plain minimum
  const Unsigned own = Unsigned(v), other = Unsigned(neighbour);
  return Node(other < own ? other : own);
}

// After the last hook, roots are overwritten with ~label (negative), and every node then gets that mark from
// its root. A node's word is written by its own thread alone, each time with an ancestor: those who pass skip
// ahead, and none can undo another's work as they could if they shortened the path of others. A root's child
// writes nothing: it would spare a step to those below, and cost a write of most words.
template <class Node>
GPN_HOST_DEVICE Node settle(Node* parent, Node v) {
  const Node above = atomic_load(parent + v);
  const Node is_root =
      above >> (8 * sizeof(Node) - 1);  // all ones or all zeros: a branch would often be guessed wrong
  Node mark = atomic_load(parent + ((v & is_root) | (above & ~is_root)));
  if (mark < 0) return mark;
  do {
    atomic_store(parent + v, mark);
    mark = atomic_load(parent + mark);
  } while (mark >= 0);
  atomic_store(parent + v, mark);
  return mark;
}

}  // namespace gpn
