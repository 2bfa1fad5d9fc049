// The nodes of some graphs before those of the others, on CUDA.
#pragma once

#include "../core/edges.h"
#include "scan.cuh"

namespace gpn::cuda {

struct PlaceNode {
  Wanted wanted;
  int64_t num_nodes, num_wanted;
  int64_t* order;
  int64_t* number;
  __device__ void operator()(int64_t v, int64_t so_far) const {
    if (v + 1 == num_nodes && so_far != num_wanted) {
      __assert_fail("num_wanted: the number of wanted nodes", __FILE__, __LINE__, "gpn::cuda");
    }
    place_node(wanted, v, so_far, num_nodes, num_wanted, order, number);
  }
};

template <class Scratch>
void partition_kernel(const Launcher& launch, const Wanted& wanted, int64_t num_nodes, int64_t num_wanted,
                      int64_t* order, int64_t* number, const Scratch& scratch) {
  scan<int64_t>(launch, num_nodes, wanted, PlaceNode{wanted, num_nodes, num_wanted, order, number}, scratch);
}

}  // namespace gpn::cuda
