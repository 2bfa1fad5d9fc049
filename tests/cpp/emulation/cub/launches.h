// What CUB's device-wide algorithms launch, and how many bytes those launches move at least: read from
// CUB 3.0 (CUDA 13.0, cub/device/dispatch/), for compute capability 8.0 to 8.9. The numbers of kernels and
// memsets are the same from 6.0 to 12.0; only the sizes of tiles differ, which decide when a sort fits one
// block and how much the look-back moves.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../emulation.h"

namespace emulation {

inline int64_t in_steps(int64_t count, int64_t step) { return (count + step - 1) / step; }

// Items a thread takes, given those of 4 bytes (cub::detail::RegBoundScaling, MemBoundScaling).
inline int64_t scaled_items(int64_t of_four_bytes, int64_t bytes) {
  return std::max<int64_t>(of_four_bytes * 4 / std::max<int64_t>(bytes, 4), 1);
}

// dispatch_radix_sort.cuh, tuning_radix_sort.cuh (Policy800). value_bytes 0: keys alone.
inline bool sorts_in_one_tile(int64_t items, int64_t key_bytes, int64_t value_bytes) {
  return items <= 256 * scaled_items(19, std::max(key_bytes, value_bytes));
}
// With more than one pass, a sort that must not overwrite its input goes through a copy.
inline int64_t copies_to_sort(int64_t items, int bits, int64_t key_bytes, int64_t value_bytes) {
  return bits <= 8 || sorts_in_one_tile(items, key_bytes, value_bytes) ? 0
                                                                       : items * (key_bytes + value_bytes);
}
inline void count_radix_sort(int64_t items, int bits, int64_t key_bytes, int64_t value_bytes) {
  if (observer == nullptr || items == 0) return;
  const int64_t moved = items * (key_bytes + value_bytes), widest = std::max(key_bytes, value_bytes);
  if (bits == 0) {
    observer->launched("copy", 1, items * key_bytes, items * key_bytes);
    if (value_bytes > 0) observer->launched("copy", 1, items * value_bytes, items * value_bytes);
    return;
  }
  if (sorts_in_one_tile(items, key_bytes, value_bytes)) {
    return observer->launched("cub::DeviceRadixSortSingleTileKernel", 1, moved, moved);
  }
  constexpr int64_t kDigits = 256, kOffset = 8, kCounter = 4;
  const int64_t passes = in_steps(bits, 8);
  const int64_t tile = 384 * scaled_items(key_bytes == 4 && value_bytes > 0 ? 17 : 21, widest);
  const int64_t portion = ((int64_t(1) << 28) - 1) / tile * tile, portions = in_steps(items, portion);
  const int64_t lookback = in_steps(items, tile) * kDigits * kCounter;  // of all portions
  observer->launched("memset", 1, 0, portions * passes * kCounter);
  observer->launched("memset", 1, 0, passes * kDigits * kOffset);
  observer->launched("cub::DeviceRadixSortHistogramKernel", 1, items * key_bytes, passes * kDigits * kOffset);
  observer->launched("cub::DeviceRadixSortExclusiveSumKernel", 1, passes * kDigits * kOffset,
                     passes * kDigits * kOffset);
  observer->launched("memset", passes * portions, 0, passes * lookback);
  observer->launched("cub::DeviceRadixSortOnesweepKernel", passes * portions, passes * (moved + lookback),
                     passes * (moved + lookback));
}

// One pass over tiles that look back at each other: dispatch_scan.cuh, dispatch_select_if.cuh,
// dispatch_reduce_by_key.cuh (for run lengths).
inline void count_single_pass(const char* init, const char* sweep, int64_t items, int64_t bytes, int64_t read,
                              int64_t written, int64_t sweeps = 1) {
  if (observer == nullptr) return;
  const int64_t descriptors = (in_steps(items, 128 * scaled_items(15, bytes)) + 32) * 2 * bytes;
  observer->launched(init, 1, 0, descriptors);
  observer->launched(sweep, sweeps, read + descriptors, written + descriptors);
}
inline void count_scan(int64_t items, int64_t bytes) {
  if (items == 0) return;
  count_single_pass("cub::DeviceScanInitKernel", "cub::DeviceScanKernel", items, bytes, items * bytes,
                    items * bytes);
}

// The same without the kernel and what the items move, which a launch counts.
inline void count_scan_of_iterators(int64_t items, int64_t bytes) {
  count_single_pass("cub::DeviceScanInitKernel", "cub::DeviceScanKernel", items, bytes, 0, 0, 0);
}

// dispatch_reduce.cuh (Policy600).
inline void count_reduce(int64_t items, int64_t bytes) {
  if (observer == nullptr) return;
  const int64_t tile = 256 * scaled_items(16, bytes);
  if (items > tile) {
    const int64_t blocks = std::min<int64_t>(in_steps(items, tile), 128 * 8 * 5);
    observer->launched("cub::DeviceReduceKernel", 1, items * bytes, blocks * bytes);
    items = blocks;
  }
  observer->launched("cub::DeviceReduceSingleTileKernel", 1, items * bytes, bytes);
}

}  // namespace emulation
