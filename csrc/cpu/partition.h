// The nodes of some graphs before those of the others, on the CPU.
#pragma once

#include "../core/errors.h"

namespace gpn::cpu {

template <class Parallel, class Scratch>
void partition_kernel(const Parallel&, const Wanted& wanted, int64_t num_nodes, int64_t num_wanted,
                      int64_t* order, int64_t* number, const Scratch&) {
  int64_t so_far = 0;
  for (int64_t v = 0; v < num_nodes; ++v) {
    so_far += wanted(v);
    place_node(wanted, v, so_far, num_nodes, num_wanted, order, number);
  }
  if (so_far != num_wanted) fail("num_wanted: expected ", so_far, ", got ", num_wanted);
}

}  // namespace gpn::cpu
