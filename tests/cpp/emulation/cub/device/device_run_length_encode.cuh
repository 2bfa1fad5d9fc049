// A stand-in for cub::DeviceRunLengthEncode.
#pragma once

#include "../storage.h"

namespace cub {

struct DeviceRunLengthEncode {
  template <class In, class Unique, class Lengths, class Runs, class Count>
  static cudaError_t Encode(void* storage, size_t& bytes, In in, Unique unique, Lengths lengths, Runs runs,
                            Count items, cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      Count count = 0;
      for (Count i = 0; i < items; ++i) {
        if (i == 0 || !(in[i] == in[i - 1])) {
          unique[count] = in[i];
          lengths[count++] = 0;
        }
        ++lengths[count - 1];
      }
      *runs = count;
      emulation::count_single_pass("cub::DeviceCompactInitKernel", "cub::DeviceReduceByKeyKernel",
                                   int64_t(items), sizeof(in[0]), int64_t(items) * int64_t(sizeof(in[0])),
                                   int64_t(count) * int64_t(sizeof(unique[0]) + sizeof(lengths[0])));
    });
  }
};

}  // namespace cub
