// Lock-free union-find on an array of parents, int32 or int64. Invariant: parent[v] <= v at all times, so
// there are no cycles, and a component's root ends up as its smallest node whatever the schedule.
#pragma once

#include "atomic.h"

namespace gpn {

// The root of v; halves the path on the way. Other threads may hook and find meanwhile.
template <class Node>
GPN_HOST_DEVICE Node find_and_halve(Node* parent, Node v) {
  Node above = atomic_load(parent + v);
  while (above != v) {
    const Node top = atomic_load(parent + above);
    if (top == above) return above;
    // Between the two loads others can only have moved parent[v] closer to its root, or done this same step:
    // a plain store of an ancestor keeps the invariant.
    atomic_store(parent + v, top);
    v = top;
    above = atomic_load(parent + v);
  }
  return v;
}

// Joins the components of u and v: the larger root is hooked below the smaller one.
template <class Node>
GPN_HOST_DEVICE void hook(Node* parent, Node u, Node v) {
  while (true) {
    u = find_and_halve(parent, u);
    v = find_and_halve(parent, v);
    if (u == v) return;
    if (u < v) {
      const Node smaller = u;
      u = v;
      v = smaller;
    }
    if (compare_and_swap(parent + u, u, v))
      return;  // else u was hooked by another thread and is a root no more
  }
}

// A node before any hook that knows one neighbour: below it if that is smaller, else a root. neighbour < 0:
// none.
template <class Node>
GPN_HOST_DEVICE Node first_parent(Node v, int64_t neighbour) {
  return neighbour >= 0 && neighbour < int64_t(v) ? Node(neighbour) : v;
}

// After the last hook, roots are overwritten with ~label (negative). The marked label of v is then found with
// reads only: a look-up that also shortened paths would race with the others.
template <class Node>
GPN_HOST_DEVICE Node label_of(Node* parent, Node v) {
  const Node above = atomic_load(parent + v);
  const Node is_root = above >> (8 * sizeof(Node) - 1);  // all ones or all zeros: a branch would
  Node marked = atomic_load(parent + ((v & is_root) | (above & ~is_root)));  // often be guessed wrong
  while (marked >= 0) marked = atomic_load(parent + marked);
  return marked;
}

}  // namespace gpn
