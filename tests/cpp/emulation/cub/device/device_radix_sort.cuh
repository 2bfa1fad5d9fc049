// A stand-in for cub::DeviceRadixSort on unsigned or non-negative keys: stable, by the bits from begin_bit to
// end_bit - 1 alone.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "../storage.h"

namespace cub {

struct DeviceRadixSort {
  template <class Key, class Value, class Count>
  static cudaError_t SortPairs(void* storage, size_t& bytes, const Key* keys_in, Key* keys_out,
                               const Value* values_in, Value* values_out, Count items, int begin_bit = 0,
                               int end_bit = 8 * sizeof(Key), cudaStream_t = nullptr) {
    return emulation::with_storage(
        storage, bytes, int64_t(items),
        [&] {
          const std::vector<Count> order = sorted(keys_in, items, begin_bit, end_bit);
          for (Count i = 0; i < items; ++i) {
            keys_out[i] = keys_in[order[i]];
            values_out[i] = values_in[order[i]];
          }
          emulation::count_radix_sort(int64_t(items), end_bit - begin_bit, sizeof(Key), sizeof(Value));
        },
        emulation::copies_to_sort(int64_t(items), end_bit - begin_bit, sizeof(Key), sizeof(Value)));
  }

  template <class Key, class Count>
  static cudaError_t SortKeys(void* storage, size_t& bytes, const Key* keys_in, Key* keys_out, Count items,
                              int begin_bit = 0, int end_bit = 8 * sizeof(Key), cudaStream_t = nullptr) {
    return emulation::with_storage(
        storage, bytes, int64_t(items),
        [&] {
          const std::vector<Count> order = sorted(keys_in, items, begin_bit, end_bit);
          for (Count i = 0; i < items; ++i) keys_out[i] = keys_in[order[i]];
          emulation::count_radix_sort(int64_t(items), end_bit - begin_bit, sizeof(Key), 0);
        },
        emulation::copies_to_sort(int64_t(items), end_bit - begin_bit, sizeof(Key), 0));
  }

 private:
  template <class Key, class Count>
  static std::vector<Count> sorted(const Key* keys, Count items, int begin_bit, int end_bit) {
    const int width = end_bit - begin_bit;
    const uint64_t mask = width >= 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
    std::vector<Count> order(items);
    std::iota(order.begin(), order.end(), Count(0));
    std::stable_sort(order.begin(), order.end(), [&](Count a, Count b) {
      return (uint64_t(keys[a]) >> begin_bit & mask) < (uint64_t(keys[b]) >> begin_bit & mask);
    });
    return order;
  }
};

}  // namespace cub
