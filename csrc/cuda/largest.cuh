// The largest of a list of ids, on CUDA.
#pragma once

#include "../core/atomic.h"
#include "launch.cuh"

namespace gpn::cuda {

struct AnyId {
  __device__ bool operator()(int64_t) const { return true; }
};

// *largest = the largest that a lane of the warp has, at least what stood there.
template <class Id>
__device__ void raise_from_warp(Id most, Id* largest) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Id other = __shfl_down_sync(0xffffffffu, most, offset);
    most = other > most ? other : most;
  }
  if (threadIdx.x % kWarp == 0) atomic_raise(largest, most);
}

// *largest = the largest id that is usable, at least what stood there.
// Registers: 64.
template <class Id, class Usable>
__global__ void raise_largest(const Id* ids, int64_t count, Usable usable, Id* largest) {
  Id most = -1;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    if (usable(ids[i]) && ids[i] > most) most = ids[i];
  }
  raise_from_warp(most, largest);
}

}  // namespace gpn::cuda
