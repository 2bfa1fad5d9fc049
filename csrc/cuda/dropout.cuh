// Dropout by an element's place, on CUDA.
#pragma once

#include "../core/random.h"
#include "../core/sums.h"
#include "launch.cuh"

namespace gpn::cuda {

// out[i] is what becomes of x[i], whose place is first + i. Both may be the same. The seed is read here, not
// on the host: that would wait, and a captured graph would drop the same elements at every replay.
// Registers: 40.
template <class T>
__global__ void dropout(Dropout<Sum<T>> dropout, const int64_t* seed, int64_t first, int64_t count,
                        const T* x, T* out) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const uint64_t place = uint64_t(first + i);
    const uint64_t word = random_word(uint64_t(*seed), place / kLanes);
    const Sum<T> value = dropout.relu ? dropout.positive(Sum<T>(x[i])) : Sum<T>(x[i]);
    out[i] = T(value * dropout.factor(lane_of(word, int64_t(place % kLanes))));
  }
}

template <class T>
void dropout_kernel(const Launcher& launch, const Dropout<Sum<T>>& dropped, const int64_t* seed,
                    int64_t first, int64_t count, const T* x, T* out) {
  launch(dropout<T>, count, dropped, seed, first, count, x, out);
}

}  // namespace gpn::cuda
