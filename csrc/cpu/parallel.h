// How work is cut for threads. An executor `parallel` says into how many tasks to cut work of a given size:
// parallel.tasks(size) >= 1, about one a thread, where each task has memory or a sweep of its own, and
// parallel.shares(size) >= 1, several a thread, where it has not. It runs them: parallel(tasks, f) calls f(t)
// for every t in [0, tasks), in any order, and returns when all are done. Whoever is free takes the next one,
// so a thread that other processes hold up leaves its work to the rest. The library hands in torch's thread
// pool, the C++ tests their own.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpn::cpu {

// [0, size) in `tasks` contiguous pieces of nearly equal length.
struct Pieces {
  int64_t size;
  int64_t tasks;

  int64_t begin(int64_t task) const { return size / tasks * task + std::min(task, size % tasks); }
  int64_t end(int64_t task) const { return begin(task + 1); }
};

template <class Parallel>
Pieces cut(const Parallel& parallel, int64_t size) {
  return {size, parallel.shares(size)};
}

template <class Parallel, class F>
void for_each_piece(const Parallel& parallel, int64_t size, const F& f) {
  const Pieces pieces = cut(parallel, size);
  parallel(pieces.tasks, [&](int64_t task) { f(pieces.begin(task), pieces.end(task)); });
}

// How far ahead of its use, in a loop, a random word is fetched.
constexpr int64_t kAhead = 32;

// A word that will be written, or read.
inline void prefetch(const void* address) { __builtin_prefetch(address, 1); }
inline void prefetch_read(const void* address) { __builtin_prefetch(address, 0); }

}  // namespace gpn::cpu
