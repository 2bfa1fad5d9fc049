// The graph between clusters, on CUDA.
#pragma once

#include "largest.cuh"
#include "unique_edges.cuh"

namespace gpn::cuda {

// An edge seen as an edge between clusters; those inside a cluster are dropped unless loops are kept.
struct BetweenClusters {
  const int64_t* cluster;
  bool self_loops;
  const int64_t* batch = nullptr;  // the graph of every node, or null: then edges may join any two

  __device__ uint64_t operator()(EdgeKeys keys, int64_t row, int64_t col, int64_t num_nodes) const {
    if (batch && batch[row] != batch[col]) {
      __assert_fail("batch: every edge inside one graph", __FILE__, __LINE__, "gpn::cuda");
      return keys.dropped();
    }
    const int64_t r = cluster[row], c = cluster[col];
    if (!fits(r, num_nodes) || !fits(c, num_nodes)) return keys.dropped();  // raise_largest has asserted
    return r != c || self_loops ? keys.key(r, c) : keys.dropped();
  }
};

struct AssertCluster {
  int64_t num_nodes;
  __device__ bool operator()(int64_t id) const {
    if (fits(id, num_nodes)) return true;
    __assert_fail("cluster: ids from 0 to num_nodes - 1", __FILE__, __LINE__, "gpn::cuda");
    return false;
  }
};

// representative[c] = the smallest node of cluster c, at most what stood there.
// Registers: 32.
template <class Id>
__global__ void lower_representatives(const Id* cluster, int64_t num_nodes, int64_t num_clusters,
                                      int64_t* representative) {
  for (int64_t v = thread_index(); v < num_nodes; v += thread_count()) {
    if (fits(cluster[v], num_clusters)) atomic_lower(representative + cluster[v], v);
  }
}

// Registers: 40.
template <class Node>
__global__ void assert_no_gaps(const Node* representative, int64_t num_clusters, int64_t num_nodes) {
  for (int64_t c = thread_index(); c < num_clusters; c += thread_count()) {
    if (representative[c] == num_nodes) {
      __assert_fail("cluster: every id from 0 to the largest", __FILE__, __LINE__, "gpn::cuda");
    }
  }
}

// What stands in `representative`: num_nodes where a node is to be found, -1 where none is.
inline void lower_to_smallest_nodes(const Launcher& launch, const int64_t* cluster, int64_t num_nodes,
                                    int64_t num_clusters, int64_t* representative) {
  launch(lower_representatives<int64_t>, num_nodes, cluster, num_nodes, num_clusters, representative);
  launch(assert_no_gaps<int64_t>, num_clusters, representative, num_clusters, num_nodes);
}

inline void smallest_nodes(const Launcher& launch, const int64_t* cluster, int64_t num_nodes,
                           int64_t num_clusters, int64_t* representative) {
  launch(fill<int64_t>, num_clusters, representative, num_clusters, num_nodes);
  lower_to_smallest_nodes(launch, cluster, num_nodes, num_clusters, representative);
}

// Raises a word on the device to the largest cluster.
inline auto raise_to_largest_cluster(const Launcher& launch, const int64_t* cluster, int64_t num_nodes) {
  return [=, &launch](int64_t* largest) {
    launch(raise_largest<int64_t, AssertCluster>, num_nodes, cluster, num_nodes, AssertCluster{num_nodes},
           largest);
  };
}

template <class Found, class Scratch>
void coarsen_kernel(const Launcher& launch, const Edges& edges, const int64_t* cluster, bool self_loops,
                    const int64_t* batch, int64_t* slot, Found& found, const Scratch& scratch) {
  const int64_t num_clusters =
      distinct(launch, edges, BetweenClusters{cluster, self_loops, batch},
               raise_to_largest_cluster(launch, cluster, edges.num_nodes), slot, found, scratch);
  smallest_nodes(launch, cluster, edges.num_nodes, num_clusters, found.new_representative(num_clusters));
}

template <class Scratch>
void coarsen_padded_kernel(const Launcher& launch, const Edges& edges, const int64_t* cluster,
                           bool self_loops, const int64_t* batch, int64_t* slot, const Padded& out,
                           const Scratch& scratch) {
  distinct_padded(launch, edges, BetweenClusters{cluster, self_loops, batch},
                  raise_to_largest_cluster(launch, cluster, edges.num_nodes), slot, out, scratch);
  lower_to_smallest_nodes(launch, cluster, edges.num_nodes, out.num_clusters, out.representative);
}

}  // namespace gpn::cuda
