// Sums, maxima and counts over the rows of a cluster, on CUDA. Rows are brought together by a stable radix
// sort of their owners; then one thread a column folds each run of equal owners, a long run piece by piece
// and its pieces likewise. No atomics on floats, and pieces are counted from the start of their run: the bits
// depend neither on the schedule nor on what else is in the list.
#pragma once

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "../core/atomic.h"
#include "../core/edges.h"
#include "../core/sums.h"
#include "launch.cuh"

namespace gpn::cuda {

// Items in the order of their owners, ascending items within one. An owner from num_owners on: the item has
// none.
template <class Index>
struct Runs {
  const Index* owner;  // [count]
  const Index* item;   // [count]
  const Index* begin;  // [num_owners + 1]: where the items of each owner begin
  int64_t count;
  int64_t num_owners;
};

// begin[o] = how many items belong to owners below o.
// Registers: 32.
template <class Index>
__global__ void find_begins(const Index* owner, int64_t count, int64_t num_owners, Index* begin) {
  for (int64_t o = thread_index(); o <= num_owners; o += thread_count()) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (owner[middle] < Index(o)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begin[o] = Index(low);
  }
}

// Sorts items 0, 1, ..., count - 1 by owner, which the caller has written into the scratch `owner`.
template <class Index, class Scratch>
Runs<Index> sort_by_owner(const Launcher& launch, const Index* owner, const Index* item, int64_t count,
                          int64_t num_owners, const Scratch& scratch) {
  Index* begin = room<Index>(scratch, num_owners + 1);
  Index* sorted_owner = room<Index>(scratch, count);
  Index* sorted_item = room<Index>(scratch, count);
  const auto find = [&] {
    launch(find_begins<Index>, num_owners + 1, sorted_owner, count, num_owners, begin);
  };
  if (count == 0) {
    find();
    return {sorted_owner, sorted_item, begin, 0, num_owners};
  }
  int bits = 1;  // enough for num_owners itself
  while (bits < 63 && int64_t(1) << bits <= num_owners) ++bits;
  size_t bytes = 0;
  Launcher::check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, owner, sorted_owner, item, sorted_item,
                                                  count, 0, bits, launch.stream));
  void* storage = scratch(int64_t(bytes));
  Launcher::check(cub::DeviceRadixSort::SortPairs(storage, bytes, owner, sorted_owner, item, sorted_item,
                                                  count, 0, bits, launch.stream));
  find();
  return {sorted_owner, sorted_item, begin, count, num_owners};
}

// Asserts that an id is one from -1 up, where -1 means 'in no cluster', and returns whether it may be used.
__device__ inline bool assert_cluster_or_none(int64_t id, int64_t num_clusters) {
  if (id >= -1 && id < num_clusters) return true;
  __assert_fail("cluster: ids from -1 to num_clusters - 1", __FILE__, __LINE__, "gpn::cuda");
  return false;
}

// Registers: 40.
template <class Index>
__global__ void own_rows(const int64_t* cluster, int64_t rows, int64_t num_clusters, Index* owner,
                         Index* item) {
  for (int64_t i = thread_index(); i < rows; i += thread_count()) {
    const bool usable = assert_cluster_or_none(cluster[i], num_clusters) && cluster[i] >= 0;
    owner[i] = Index(usable ? cluster[i] : num_clusters);
    item[i] = Index(i);
  }
}

template <class Index, class Scratch>
Runs<Index> runs_of_rows(const Launcher& launch, const Segments<>& segments, const Scratch& scratch) {
  Index* owner = room<Index>(scratch, segments.rows);
  Index* item = room<Index>(scratch, segments.rows);
  launch(own_rows<Index>, segments.rows, segments.cluster, segments.rows, segments.num_clusters, owner, item);
  return sort_by_owner(launch, owner, item, segments.rows, segments.num_clusters, scratch);
}

// --------------------------------------------------------------------------------------------------- folds

// A run folds at most 2^kPieceBits terms in sequence. One that is longer is cut into pieces of that many; the
// results of these are the terms of the next level, and so on.
constexpr int kMostLevels = 16;

// A run, or what is left of it at a level.
struct Run {
  int64_t begin, length;
  __device__ Run next_level(int bits) const {
    return {begin >> bits, (length + (int64_t(1) << bits) - 1) >> bits};
  }
};

// Where the terms of level l > 0 are. The terms of a run lie two apart, from 2 * begin on: so the last of one
// run and the first of the next, which may fall on the same place, do not meet.
template <class Value>
struct Levels {
  Value* terms[kMostLevels];
  int bits;  // of the length of a piece
  int count;
};

// A term of column k: number j of a run at a level.
template <class Index, class Term>
__device__ typename Term::Value term_of(const Runs<Index>& runs, const Levels<typename Term::Value>& levels,
                                        int level, const Run& run, int64_t j, int64_t k, int64_t width,
                                        const Term& term) {
  if (level == 0) return term(int64_t(runs.item[run.begin + j]), k);
  return levels.terms[level][(2 * (run.begin + j) + (j == 0)) * width + k];
}

// What an owner's run is at a level.
template <class Index>
__device__ Run run_at(const Runs<Index>& runs, int64_t owner, int level, int bits) {
  const int64_t begin = int64_t(runs.begin[owner]);
  Run run{begin, int64_t(runs.begin[owner + 1]) - begin};
  for (int l = 0; l < level; ++l) run = run.next_level(bits);
  return run;
}

// Folds the pieces of a level's long runs, one thread a piece and column. A stretch of 2^bits terms holds at
// most the start of one such run and one piece of a run that started before: two places of the next level.
// Registers: 64.
template <class Index, class Term>
__global__ void __launch_bounds__(kMostThreads, 1)
    fold_pieces(Runs<Index> runs, Levels<typename Term::Value> levels, int level, int64_t places,
                int64_t width, Term term) {
  const int64_t size = int64_t(1) << levels.bits;
  const int stretch_bits = levels.bits * (level + 1);  // of items
  for (int64_t at = thread_index(); at < places * width; at += thread_count()) {
    const int64_t place = at / width, k = at % width, stretch = place / 2;
    const bool starts = place % 2 == 1;
    // Whose piece it may be: the run that reaches into the stretch, or out of it.
    const int64_t item = starts ? ((stretch + 1) << stretch_bits) - 1 : stretch << stretch_bits;
    if (item >= runs.count) continue;
    if (runs.owner[item] >= Index(runs.num_owners)) continue;
    const int64_t owner = int64_t(runs.owner[item]);
    const Run run = run_at(runs, owner, level, levels.bits);
    const int64_t first = stretch << levels.bits;
    if (run.length <= size || (run.begin >= first) != starts) continue;
    const int64_t j = starts ? 0 : ((first - run.begin + size - 1) >> levels.bits) << levels.bits;
    if (j >= run.length) continue;
    const int64_t end = j + size < run.length ? j + size : run.length;
    typename Term::Value value = term_of(runs, levels, level, run, j, k, width, term);
    for (int64_t i = j + 1; i < end; ++i) {
      value = Term::join(value, term_of(runs, levels, level, run, i, k, width, term));
    }
    levels.terms[level + 1][at] = value;
  }
}

// One thread an owner and column.
// Registers: 64.
template <class Index, class Term, class Store>
__global__ void __launch_bounds__(kMostThreads, 1)
    fold_runs(Runs<Index> runs, Levels<typename Term::Value> levels, int64_t width, Term term, Store store) {
  for (int64_t at = thread_index(); at < runs.num_owners * width; at += thread_count()) {
    const int64_t owner = at / width, k = at % width;
    Run run = run_at(runs, owner, 0, levels.bits);
    const int64_t terms = run.length;
    if (terms == 0) {
      store.none(at, owner);
      continue;
    }
    int level = 0;
    for (; run.length > int64_t(1) << levels.bits; ++level) run = run.next_level(levels.bits);
    typename Term::Value value = store.start(at, term_of(runs, levels, level, run, 0, k, width, term));
#if defined(__CUDACC__)
#pragma unroll 2  // four at a time would not fit the registers
#endif
    for (int64_t i = 1; i < run.length; ++i) {
      value = Term::join(value, term_of(runs, levels, level, run, i, k, width, term));
    }
    store.finish(at, owner, value, terms);
  }
}

template <class Index, class Term, class Store, class Scratch>
void fold(const Launcher& launch, const Runs<Index>& runs, int64_t width, Term term, Store store,
          const Scratch& scratch) {
  Levels<typename Term::Value> levels{{}, launch.piece_bits, 1};
  for (int64_t terms = runs.count; terms > int64_t(1) << levels.bits; ++levels.count) {
    terms = (terms + (int64_t(1) << levels.bits) - 1) >> levels.bits;
    levels.terms[levels.count] = room<typename Term::Value>(scratch, 2 * terms * width);
    launch(fold_pieces<Index, Term>, 2 * terms * width, runs, levels, levels.count - 1, 2 * terms, width,
           term);
  }
  launch(fold_runs<Index, Term, Store>, runs.num_owners * width, runs, levels, width, term, store);
}

// ---------------------------------------------------------------------------------------------------- sums

// What row i adds to column k of its cluster.
template <class T>
struct RowTerm {
  using Value = Sum<T>;
  const T* x;
  int64_t width;
  __device__ Value operator()(int64_t i, int64_t k) const { return Value(x[i * width + k]); }
  __device__ static Value join(Value a, Value b) { return a + b; }
};

// Where a sum starts from, and where it goes.
template <class T>
struct AddTo {
  Sum<T>* out;
  __device__ void none(int64_t, int64_t) const {}
  __device__ Sum<T> start(int64_t at, Sum<T> first) const { return out[at] + first; }
  __device__ void finish(int64_t at, int64_t, Sum<T> sum, int64_t) const { out[at] = sum; }
};
template <class T>
struct StoreSum {
  T* out;
  bool mean;
  __device__ void none(int64_t at, int64_t) const { out[at] = T(0); }
  __device__ Sum<T> start(int64_t, Sum<T> first) const { return Sum<T>(0) + first; }
  __device__ void finish(int64_t at, int64_t, Sum<T> sum, int64_t terms) const {
    out[at] = T(mean ? sum / Sum<T>(terms) : sum);
  }
};

// out[cluster[i]] += x[i].
template <class Index, class T, class Scratch>
void accumulate(const Launcher& launch, const Segments<>& segments, const T* x, Sum<T>* out,
                const Scratch& scratch) {
  const Runs<Index> runs = runs_of_rows<Index>(launch, segments, scratch);
  fold(launch, runs, segments.width, RowTerm<T>{x, segments.width}, AddTo<T>{out}, scratch);
}

// ------------------------------------------------------------------------------------------------- maxima

template <class T>
struct RowValue {
  using Value = T;
  const T* x;
  int64_t width;
  __device__ T operator()(int64_t i, int64_t k) const { return x[i * width + k]; }
  __device__ static T join(T a, T b) { return above(b, a) ? b : a; }
};

template <class T>
struct StoreValue {
  T* out;
  __device__ void none(int64_t at, int64_t) const { out[at] = T(0); }
  __device__ T start(int64_t, T first) const { return first; }
  __device__ void finish(int64_t at, int64_t, T value, int64_t) const { out[at] = value; }
};

// A row that reaches the maximum of its cluster, or none. The first of two is the lower.
template <class Index, class T>
struct ReachingRow {
  using Value = Index;
  static constexpr Index kNone = std::numeric_limits<Index>::max();
  const T* x;
  const T* maximum;
  const int64_t* cluster;
  int64_t width;
  __device__ Index operator()(int64_t i, int64_t k) const {
    return equals_maximum(x[i * width + k], maximum[cluster[i] * width + k]) ? Index(i) : kNone;
  }
  __device__ static Index join(Index a, Index b) { return b < a ? b : a; }
};

// The gradient goes to the first row that reaches the maximum; grad_x is 0 elsewhere.
template <class Index, class T>
struct PassGradient {
  const T* grad;
  T* grad_x;
  int64_t width;
  __device__ void none(int64_t, int64_t) const {}
  __device__ Index start(int64_t, Index first) const { return first; }
  __device__ void finish(int64_t at, int64_t, Index row, int64_t) const {
    if (row != ReachingRow<Index, T>::kNone) grad_x[int64_t(row) * width + at % width] = grad[at];
  }
};

// out[c] = sum, mean or maximum over the rows of cluster c; 0 where there are none.
template <class Index, class T, class Scratch>
void reduce(const Launcher& launch, const Segments<>& segments, const T* x, Reduction reduction, T* out,
            const Scratch& scratch) {
  const Runs<Index> runs = runs_of_rows<Index>(launch, segments, scratch);
  const int64_t width = segments.width;
  if (reduction == Reduction::kMax) {
    fold(launch, runs, width, RowValue<T>{x, width}, StoreValue<T>{out}, scratch);
  } else {
    const bool mean = reduction == Reduction::kMean;
    fold(launch, runs, width, RowTerm<T>{x, width}, StoreSum<T>{out, mean}, scratch);
  }
}

template <class Index, class T, class Scratch>
void maximum_backward(const Launcher& launch, const Segments<>& segments, const T* grad, const T* x,
                      const T* maximum, T* grad_x, const Scratch& scratch) {
  const Runs<Index> runs = runs_of_rows<Index>(launch, segments, scratch);
  const int64_t width = segments.width;
  launch(fill<T>, segments.rows * width, grad_x, segments.rows * width, T(0));
  fold(launch, runs, width, ReachingRow<Index, T>{x, maximum, segments.cluster, width},
       PassGradient<Index, T>{grad, grad_x, width}, scratch);
}

// ------------------------------------------------------------------------------------------ without order

// sizes[c] += 1 for every row of cluster c.
// Registers: 40.
template <class Id>
__global__ void count_rows(Segments<Id> segments, int64_t* sizes) {
  for (int64_t i = thread_index(); i < segments.rows; i += thread_count()) {
    const int64_t c = segments.cluster[i];
    if (assert_cluster_or_none(c, segments.num_clusters) && c >= 0) {
      AtomicRef<int64_t>(sizes[c]).fetch_add(1, memory_order_relaxed);
    }
  }
}

template <class T, class Scratch>
void reduce_kernel(const Launcher& launch, const Segments<>& segments, const T* x, Reduction reduction,
                   T* out, const Scratch& scratch) {
  with_index(std::max(segments.rows, segments.num_clusters),
             [&](auto index) { reduce<decltype(index)>(launch, segments, x, reduction, out, scratch); });
}

template <class T, class Scratch>
void reduce_max_backward_kernel(const Launcher& launch, const Segments<>& segments, const T* grad, const T* x,
                                const T* maximum, T* grad_x, const Scratch& scratch) {
  with_index(std::max(segments.rows, segments.num_clusters), [&](auto index) {
    maximum_backward<decltype(index)>(launch, segments, grad, x, maximum, grad_x, scratch);
  });
}

template <class T, class Scratch>
void accumulate_kernel(const Launcher& launch, const Segments<>& segments, const T* x, Sum<T>* out,
                       const Scratch& scratch) {
  with_index(std::max(segments.rows, segments.num_clusters),
             [&](auto index) { accumulate<decltype(index)>(launch, segments, x, out, scratch); });
}

inline void cluster_sizes_kernel(const Launcher& launch, const Segments<>& segments, int64_t* sizes) {
  launch(fill<int64_t>, segments.num_clusters, sizes, segments.num_clusters, 0);
  launch(count_rows<int64_t>, segments.rows, segments, sizes);
}

}  // namespace gpn::cuda
