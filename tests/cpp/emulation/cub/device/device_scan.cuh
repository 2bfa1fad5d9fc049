// A stand-in for cub::DeviceScan. Input and output may be the same.
#pragma once

#include <iterator>
#include <vector>

#include "../storage.h"

namespace cub {

// Named for its name to be found.
inline void DeviceScanKernel(const std::function<void()>& thread) { thread(); }

struct DeviceScan {
  template <class In, class Out, class Count>
  static cudaError_t InclusiveSum(void* storage, size_t& bytes, In in, Out out, Count items,
                                  cudaStream_t = nullptr) {
    using Sum = typename std::iterator_traits<In>::value_type;
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      Sum sum{};
      if constexpr (std::is_pointer_v<In> && std::is_pointer_v<Out>) {
        for (Count i = 0; i < items; ++i) out[i] = sum = sum + in[i];
        emulation::count_scan(int64_t(items), sizeof(sum));
      } else {
        std::vector<Sum> terms, sums;
        for (Count i = 0; i < items; ++i) {
          terms.push_back(in[i]);
          sums.push_back(sum = sum + terms.back());
        }
        run_tiles(in, out, terms, sums);
      }
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

 private:
  // Iterators that do more than read and write run on the device, in tiles as CUB has them: a tile reads all
  // its terms before it writes, and tiles go in any order. The sums are known; a term that another tile has
  // changed is a mistake.
  template <class In, class Out, class Sum>
  static void run_tiles(In in, Out out, const std::vector<Sum>& terms, const std::vector<Sum>& sums) {
    constexpr unsigned kThreads = 128;
    const int64_t items = int64_t(terms.size()), tile = kThreads * emulation::scaled_items(15, sizeof(Sum));
    if (items == 0) return;
    emulation::count_scan_of_iterators(items, sizeof(Sum));
    const std::function<void()> thread = [&] {
      const int64_t begin = blockIdx.x * tile, end = std::min(begin + tile, items);
      for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
        if (in[i] != terms[size_t(i)]) emulation::record.failure = "emulation: a term changed during a scan";
      }
      __syncthreads();
      for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) out[i] = sums[size_t(i)];
    };
    const auto kernel = &DeviceScanKernel;
    emulation::launch(unsigned(emulation::in_steps(items, tile)), kThreads,
                      [kernel, &thread] { kernel(thread); });
  }
};

}  // namespace cub
