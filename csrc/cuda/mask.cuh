// What the edges inside a cluster add up to, on CUDA.
#pragma once

#include "reduce.cuh"

namespace gpn::cuda {

// The cluster that holds both ends of an edge which takes part, -1 if none does. takes_part: of every edge,
// or null: all do.
__device__ inline int64_t inner_cluster(const Edges& edges, const int64_t* cluster, int64_t num_clusters,
                                        const bool* takes_part, int64_t edge) {
  const int64_t row = edges.row[edge], col = edges.col[edge];
  if (!in_range(row, edges.num_nodes) || !in_range(col, edges.num_nodes)) return -1;
  if (takes_part && !takes_part[edge]) return -1;
  const int64_t c = cluster[row];
  return c == cluster[col] && assert_cluster_or_none(c, num_clusters) ? c : -1;
}

// Registers: 40.
template <class Index>
__global__ void own_edges(Edges edges, const int64_t* cluster, int64_t num_clusters, const bool* takes_part,
                          Index* owner, Index* item) {
  for (int64_t edge = thread_index(); edge < edges.count; edge += thread_count()) {
    const int64_t c = inner_cluster(edges, cluster, num_clusters, takes_part, edge);
    owner[edge] = Index(c < 0 ? num_clusters : c);
    item[edge] = Index(edge);
  }
}

template <class T>
struct StoreMask {
  T* total;
  int64_t* count;
  __device__ void none(int64_t at, int64_t owner) const {
    total[at] = T(1);
    count[owner] = 1;
  }
  __device__ Sum<T> start(int64_t, Sum<T> first) const { return Sum<T>(0) + first; }
  __device__ void finish(int64_t at, int64_t owner, Sum<T> sum, int64_t terms) const {
    total[at] = T(sum);
    count[owner] = terms;
  }
};

// Equation 4: total[c] = sum of the scores of the edges inside cluster c, count[c] = their number; both 1
// where there are none.
template <class Index, class T, class Scratch>
void mask(const Launcher& launch, const Edges& edges, const T* scores, const int64_t* cluster,
          int64_t num_clusters, const bool* takes_part, T* total, int64_t* count, const Scratch& scratch) {
  Index* owner = room<Index>(scratch, edges.count);
  Index* item = room<Index>(scratch, edges.count);
  launch(own_edges<Index>, edges.count, edges, cluster, num_clusters, takes_part, owner, item);
  const Runs<Index> runs = sort_by_owner(launch, owner, item, edges.count, num_clusters, scratch);
  fold(launch, runs, 1, RowTerm<T>{scores, 1}, StoreMask<T>{total, count}, scratch);
}

// Registers: 40.
template <class T>
__global__ void mask_backward(Edges edges, const int64_t* cluster, int64_t num_clusters,
                              const bool* takes_part, const T* grad, T* grad_scores) {
  for (int64_t edge = thread_index(); edge < edges.count; edge += thread_count()) {
    const int64_t c = inner_cluster(edges, cluster, num_clusters, takes_part, edge);
    grad_scores[edge] = c < 0 ? T(0) : grad[c];
  }
}

// takes_part: of every edge, or null: all do. order: those of InnerEdges for the edges that do, or null.
template <class T, class Scratch>
void mask_kernel(const Launcher& launch, const Edges& edges, const T* scores, const int64_t* cluster,
                 int64_t num_clusters, const bool* takes_part, const uint32_t* order, T* total,
                 int64_t* count, const Scratch& scratch) {
  if (order && num_clusters <= edges.num_nodes) {
    const uint32_t* begin = order + 2 * edges.count;
    const Runs<uint32_t> runs{order, order + edges.count, begin, edges.count, num_clusters};
    fold(launch, runs, 1, RowTerm<T>{scores, 1}, StoreMask<T>{total, count}, scratch);
    return;
  }
  with_index(std::max(edges.count, num_clusters), [&](auto index) {
    mask<decltype(index)>(launch, edges, scores, cluster, num_clusters, takes_part, total, count, scratch);
  });
}

template <class T>
void mask_backward_kernel(const Launcher& launch, const Edges& edges, const int64_t* cluster,
                          int64_t num_clusters, const bool* takes_part, const T* grad, T* grad_scores) {
  launch(mask_backward<T>, edges.count, edges, cluster, num_clusters, takes_part, grad, grad_scores);
}

}  // namespace gpn::cuda
