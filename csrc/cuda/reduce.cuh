// Sums, maxima and counts over the rows of a cluster, on CUDA. Rows are brought together by a stable radix
// sort of their owners; then one thread a column walks each run of equal owners in order. No atomics on
// floats: the bits do not depend on the schedule, and a sum taken tile by tile has those of one taken at
// once.
#pragma once

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "../core/atomic.h"
#include "../core/edges.h"
#include "../core/sums.h"
#include "launch.cuh"

namespace gpn::cuda {

// Items in the order of their owners, ascending items within one. An owner of num_owners: the item has none.
template <class Index>
struct Runs {
  const Index* owner;  // [count]
  const Index* item;   // [count]
  int64_t count;
  int64_t num_owners;
};

// Sorts items 0, 1, ..., count - 1 by owner, which the caller has written into the scratch `owner`.
template <class Index, class Scratch>
Runs<Index> sort_by_owner(const Launcher& launch, const Index* owner, const Index* item, int64_t count,
                          int64_t num_owners, const Scratch& scratch) {
  if (count == 0) return {owner, item, 0, num_owners};
  Index* sorted_owner = room<Index>(scratch, count);
  Index* sorted_item = room<Index>(scratch, count);
  int bits = 1;  // enough for num_owners itself
  while (bits < 63 && int64_t(1) << bits <= num_owners) ++bits;
  size_t bytes = 0;
  Launcher::check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, owner, sorted_owner, item, sorted_item,
                                                  count, 0, bits, launch.stream));
  void* storage = scratch(int64_t(bytes));
  Launcher::check(cub::DeviceRadixSort::SortPairs(storage, bytes, owner, sorted_owner, item, sorted_item,
                                                  count, 0, bits, launch.stream));
  return {sorted_owner, sorted_item, count, num_owners};
}

// Whether an id from -1 up may be used, where -1 means 'in no cluster'.
__device__ inline bool is_cluster_or_none(int64_t id, int64_t num_clusters) {
  if (id >= -1 && id < num_clusters) return true;
  __assert_fail("cluster: ids from -1 to num_clusters - 1", __FILE__, __LINE__, "gpn::cuda");
  return false;
}

// Registers: 40.
template <class Index>
__global__ void own_rows(const int64_t* cluster, int64_t rows, int64_t num_clusters, Index* owner,
                         Index* item) {
  for (int64_t i = thread_index(); i < rows; i += thread_count()) {
    const bool usable = is_cluster_or_none(cluster[i], num_clusters) && cluster[i] >= 0;
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

// ---------------------------------------------------------------------------------------------------- sums

// What row i adds to column k of its cluster.
template <class T>
struct RowTerm {
  using Value = Sum<T>;
  const T* x;
  int64_t width;
  __device__ Value operator()(int64_t i, int64_t k) const { return Value(x[i * width + k]); }
};

// Where a sum starts from, and where it goes.
template <class T>
struct AddTo {
  Sum<T>* out;
  __device__ Sum<T> start(int64_t at) const { return out[at]; }
  __device__ void finish(int64_t at, int64_t, Sum<T> sum, int64_t) const { out[at] = sum; }
};
template <class T>
struct StoreSum {
  T* out;
  bool mean;
  __device__ Sum<T> start(int64_t) const { return 0; }
  __device__ void finish(int64_t at, int64_t, Sum<T> sum, int64_t terms) const {
    out[at] = T(mean ? sum / Sum<T>(terms) : sum);
  }
};
// One thread a run and column. Owners without items are left as they are.
// Registers: 40.
template <class Index, class Term, class Store>
__global__ void __launch_bounds__(kMostThreads)
    sum_runs(Runs<Index> runs, int64_t width, Term term, Store store) {
  for (int64_t at = thread_index(); at < runs.count * width; at += thread_count()) {
    const int64_t first = at / width, k = at % width;
    const Index owner = runs.owner[first];
    if (int64_t(owner) == runs.num_owners || (first > 0 && runs.owner[first - 1] == owner)) continue;
    const int64_t to = int64_t(owner) * width + k;
    typename Term::Value sum = store.start(to);
    int64_t i = first;
    do {
      sum += term(int64_t(runs.item[i]), k);
      ++i;
    } while (i < runs.count && runs.owner[i] == owner);
    store.finish(to, int64_t(owner), sum, i - first);
  }
}

// out[cluster[i]] += x[i] in ascending i.
template <class Index, class T, class Scratch>
void accumulate(const Launcher& launch, const Segments<>& segments, const T* x, Sum<T>* out,
                const Scratch& scratch) {
  const Runs<Index> runs = runs_of_rows<Index>(launch, segments, scratch);
  launch(sum_runs<Index, RowTerm<T>, AddTo<T>>, runs.count * segments.width, runs, segments.width,
         RowTerm<T>{x, segments.width}, AddTo<T>{out});
}

// ------------------------------------------------------------------------------------------------- maxima

// Registers: 32.
template <class Index, class T>
__global__ void __launch_bounds__(kMostThreads)
    maximum_of_runs(Runs<Index> runs, int64_t width, const T* x, T* out) {
  for (int64_t at = thread_index(); at < runs.count * width; at += thread_count()) {
    const int64_t first = at / width, k = at % width;
    const Index owner = runs.owner[first];
    if (int64_t(owner) == runs.num_owners || (first > 0 && runs.owner[first - 1] == owner)) continue;
    T best = x[int64_t(runs.item[first]) * width + k];
    for (int64_t i = first + 1; i < runs.count && runs.owner[i] == owner; ++i) {
      const T value = x[int64_t(runs.item[i]) * width + k];
      if (above(value, best)) best = value;
    }
    out[int64_t(owner) * width + k] = best;
  }
}

// The gradient goes to the first row that reaches the maximum; grad_x is 0 elsewhere.
// Registers: 32.
template <class Index, class T>
__global__ void __launch_bounds__(kMostThreads)
    first_of_runs(Runs<Index> runs, int64_t width, const T* grad, const T* x, const T* maximum, T* grad_x) {
  for (int64_t at = thread_index(); at < runs.count * width; at += thread_count()) {
    const int64_t first = at / width, k = at % width;
    const Index owner = runs.owner[first];
    if (int64_t(owner) == runs.num_owners || (first > 0 && runs.owner[first - 1] == owner)) continue;
    const int64_t from = int64_t(owner) * width + k;
    for (int64_t i = first; i < runs.count && runs.owner[i] == owner; ++i) {
      const int64_t to = int64_t(runs.item[i]) * width + k;
      if (equals_maximum(x[to], maximum[from])) {
        grad_x[to] = grad[from];
        break;
      }
    }
  }
}

// out[c] = sum, mean or maximum over the rows of cluster c; 0 where there are none.
template <class Index, class T, class Scratch>
void reduce(const Launcher& launch, const Segments<>& segments, const T* x, Reduction reduction, T* out,
            const Scratch& scratch) {
  const Runs<Index> runs = runs_of_rows<Index>(launch, segments, scratch);
  const int64_t width = segments.width;
  launch(fill<T>, segments.num_clusters * width, out, segments.num_clusters * width, T(0));
  if (reduction == Reduction::kMax) {
    launch(maximum_of_runs<Index, T>, runs.count * width, runs, width, x, out);
  } else {
    launch(sum_runs<Index, RowTerm<T>, StoreSum<T>>, runs.count * width, runs, width, RowTerm<T>{x, width},
           StoreSum<T>{out, reduction == Reduction::kMean});
  }
}

template <class Index, class T, class Scratch>
void maximum_backward(const Launcher& launch, const Segments<>& segments, const T* grad, const T* x,
                      const T* maximum, T* grad_x, const Scratch& scratch) {
  const Runs<Index> runs = runs_of_rows<Index>(launch, segments, scratch);
  const int64_t width = segments.width;
  launch(fill<T>, segments.rows * width, grad_x, segments.rows * width, T(0));
  launch(first_of_runs<Index, T>, runs.count * width, runs, width, grad, x, maximum, grad_x);
}

// ------------------------------------------------------------------------------------------ without order

// sizes[c] += 1 for every row of cluster c.
// Registers: 40.
template <class Id>
__global__ void count_rows(Segments<Id> segments, int64_t* sizes) {
  for (int64_t i = thread_index(); i < segments.rows; i += thread_count()) {
    const int64_t c = segments.cluster[i];
    if (is_cluster_or_none(c, segments.num_clusters) && c >= 0) {
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
