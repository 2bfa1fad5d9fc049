// A stand-in for cub::DeviceScan. Input and output may be the same.
#pragma once

#include "../storage.h"

namespace cub {

struct DeviceScan {
  template <class In, class Out, class Count>
  static cudaError_t InclusiveSum(void* storage, size_t& bytes, In in, Out out, Count items,
                                  cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      std::remove_cvref_t<decltype(in[0])> sum{};
      for (Count i = 0; i < items; ++i) out[i] = sum = sum + in[i];
      emulation::count_scan(int64_t(items), sizeof(sum));
    });
  }

  template <class In, class Out, class Count>
  static cudaError_t ExclusiveSum(void* storage, size_t& bytes, In in, Out out, Count items,
                                  cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      std::remove_cvref_t<decltype(in[0])> sum{};
      for (Count i = 0; i < items; ++i) {
        const auto value = in[i];
        out[i] = sum;
        sum = sum + value;
      }
      emulation::count_scan(int64_t(items), sizeof(sum));
    });
  }
};

}  // namespace cub
