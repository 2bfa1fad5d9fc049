// Relaxed atomics on plain memory. Relaxed order is enough throughout: every phase of the algorithm only
// needs each single word to be read and written whole, and phases are separated by a join (CPU) or a kernel
// boundary (CUDA).
#pragma once

#include "platform.h"

#if defined(__CUDACC__) || defined(GPN_EMULATED_CUDA)
#include <cuda/atomic>
#else
#include <atomic>
#endif

namespace gpn {

#if defined(__CUDACC__) || defined(GPN_EMULATED_CUDA)
template <class T>
using AtomicRef = ::cuda::atomic_ref<T, ::cuda::thread_scope_device>;
using ::cuda::std::memory_order_relaxed;
#else
template <class T>
using AtomicRef = std::atomic_ref<T>;
using std::memory_order_relaxed;
#endif

template <class T>
GPN_HOST_DEVICE T atomic_load(T* address) {
  GPN_SCHEDULE_POINT();
  return AtomicRef<T>(*address).load(memory_order_relaxed);
}

template <class T>
GPN_HOST_DEVICE void atomic_store(T* address, T value) {
  GPN_SCHEDULE_POINT();
  AtomicRef<T>(*address).store(value, memory_order_relaxed);
}

// Writes `desired` where `expected` stands; says whether it did.
template <class T>
GPN_HOST_DEVICE bool compare_and_swap(T* address, T expected, T desired) {
  GPN_SCHEDULE_POINT();
  return AtomicRef<T>(*address).compare_exchange_strong(expected, desired, memory_order_relaxed,
                                                        memory_order_relaxed);
}

// *address = max(*address, value). A value that cannot win costs a load and no write.
template <class T>
GPN_HOST_DEVICE void atomic_raise(T* address, T value) {
#if defined(__CUDA_ARCH__) || defined(GPN_EMULATED_CUDA)
  if (atomic_load(address) < value) AtomicRef<T>(*address).fetch_max(value, memory_order_relaxed);
#else
  T seen = atomic_load(address);
  while (seen < value) {
    if (compare_and_swap(address, seen, value)) return;
    seen = atomic_load(address);
  }
#endif
}

// *address = min(*address, value).
template <class T>
GPN_HOST_DEVICE void atomic_lower(T* address, T value) {
#if defined(__CUDA_ARCH__) || defined(GPN_EMULATED_CUDA)
  if (value < atomic_load(address)) AtomicRef<T>(*address).fetch_min(value, memory_order_relaxed);
#else
  T seen = atomic_load(address);
  while (value < seen) {
    if (compare_and_swap(address, seen, value)) return;
    seen = atomic_load(address);
  }
#endif
}

}  // namespace gpn
