// A stand-in for cub::DeviceSelect.
#pragma once

#include "../storage.h"

namespace cub {

struct DeviceSelect {
  template <class In, class Flags, class Out, class Selected, class Count>
  static cudaError_t Flagged(void* storage, size_t& bytes, In in, Flags flags, Out out, Selected selected,
                             Count items, cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      Count count = 0;
      for (Count i = 0; i < items; ++i) {
        if (flags[i]) out[count++] = in[i];
      }
      *selected = count;
      emulation::count_single_pass("cub::DeviceCompactInitKernel", "cub::DeviceSelectSweepKernel",
                                   int64_t(items), sizeof(in[0]),
                                   int64_t(items) * int64_t(sizeof(in[0]) + sizeof(flags[0])),
                                   int64_t(count) * int64_t(sizeof(in[0])));
    });
  }

  template <class In, class Out, class Selected, class Count, class Keep>
  static cudaError_t If(void* storage, size_t& bytes, In in, Out out, Selected selected, Count items,
                        Keep keep, cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      Count count = 0;
      for (Count i = 0; i < items; ++i) {
        if (keep(in[i])) out[count++] = in[i];
      }
      *selected = count;
      emulation::count_single_pass("cub::DeviceCompactInitKernel", "cub::DeviceSelectSweepKernel",
                                   int64_t(items), sizeof(in[0]), int64_t(items) * int64_t(sizeof(in[0])),
                                   int64_t(count) * int64_t(sizeof(in[0])));
    });
  }

  template <class In, class Out, class Selected, class Count>
  static cudaError_t Unique(void* storage, size_t& bytes, In in, Out out, Selected selected, Count items,
                            cudaStream_t = nullptr) {
    return emulation::with_storage(storage, bytes, int64_t(items), [&] {
      Count count = 0;
      for (Count i = 0; i < items; ++i) {
        if (i == 0 || !(in[i] == in[i - 1])) out[count++] = in[i];
      }
      *selected = count;
      emulation::count_single_pass("cub::DeviceCompactInitKernel", "cub::DeviceSelectSweepKernel",
                                   int64_t(items), sizeof(in[0]), int64_t(items) * int64_t(sizeof(in[0])),
                                   int64_t(count) * int64_t(sizeof(in[0])));
    });
  }
};

}  // namespace cub
