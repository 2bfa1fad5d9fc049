// What the stand-ins of CUB's device-wide algorithms share. They run serially on the host: a kernel boundary
// before and after. The first call, without storage, asks how many bytes are needed; the second one runs, and
// writes to all of them so that AddressSanitizer sees storage that is too small. Each tells the observer what
// the real one launches.
#pragma once

#include <cstring>

#include "../cuda_runtime.h"
#include "launches.h"

namespace emulation {

// copies: bytes beside those of tiles' descriptors, of which there are few.
template <class Run>
cudaError_t with_storage(void* storage, size_t& bytes, int64_t items, const Run& run, int64_t copies = 0) {
  const size_t needed = 256 + size_t(items / 16 + copies);
  if (storage == nullptr) {
    bytes = needed;
    return cudaSuccess;
  }
  if (bytes < needed || items < 0) return cudaErrorInvalidValue;
  const OnDevice on_device;
  std::memset(storage, 0xa5, bytes);
  run();
  return cudaSuccess;
}

}  // namespace emulation
