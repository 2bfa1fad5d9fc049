// A stand-in for cub::DeviceReduce.
#pragma once

#include <limits>

#include "../storage.h"

namespace cub {

struct DeviceReduce {
  template <class In, class Out, class Count>
  static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, Count items, cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      std::remove_cvref_t<decltype(in[0])> sum{};
      for (Count i = 0; i < items; ++i) sum = sum + in[i];
      *out = sum;
      emulation::count_reduce(int64_t(items), sizeof(sum));
    });
  }

  template <class In, class Out, class Count>
  static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, Count items, cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      auto most = std::numeric_limits<std::remove_cvref_t<decltype(in[0])>>::lowest();
      for (Count i = 0; i < items; ++i) most = in[i] > most ? in[i] : most;
      *out = most;
      emulation::count_reduce(int64_t(items), sizeof(most));
    });
  }
};

}  // namespace cub
