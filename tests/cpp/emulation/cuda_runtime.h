// The words of CUDA that kernels and their launch code use, in terms of emulation.h. Add what a new kernel
// needs.
#pragma once

#define GPN_EMULATED_CUDA 1

#include <cassert>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulation.h"

// ------------------------------------------------------------------------------------------------ language

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __shared__             \
  ::emulation::enter_shared(); \
  static

// Device-side assertions are recorded and the thread goes on, so that a test can see what it does next.
#define __assert_fail(text, file, line, function) ::emulation::assertion_failed(text, file, line, function)

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

// ------------------------------------------------------------------------------------------- warps and
// blocks

inline void __syncthreads(emulation::Place place = emulation::Place::current()) {
  emulation::sync_block(place);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, emulation::Place place = emulation::Place::current()) {
  emulation::sync_warp(mask, place);
}
inline void __threadfence() { emulation::fence(); }
inline void __threadfence_block() { emulation::fence(); }

namespace emulation {

// The value of lane `from`, or the caller's own where that lies outside of its group of `width` lanes.
template <class T>
T shuffle(unsigned mask, T value, int from, int width, Place place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const uint64_t* values = exchange(mask, bits, place);
  const int first = int(thread_of_block() % 32) / width * width;
  if (from >= first && from < first + width) std::memcpy(&value, values + from, sizeof(T));
  return value;
}

}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              emulation::Place place = emulation::Place::current()) {
  return emulation::shuffle(mask, value,
                            int(emulation::thread_of_block() % 32) / width * width + (from & (width - 1)),
                            width, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   emulation::Place place = emulation::Place::current()) {
  return emulation::shuffle(mask, value, int(emulation::thread_of_block() % 32 + delta), width, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 emulation::Place place = emulation::Place::current()) {
  return emulation::shuffle(mask, value, int(emulation::thread_of_block() % 32) - int(delta), width, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  emulation::Place place = emulation::Place::current()) {
  return emulation::shuffle(mask, value, int(emulation::thread_of_block() % 32) ^ bits, width, place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              emulation::Place place = emulation::Place::current()) {
  const uint64_t* values = emulation::exchange(mask, predicate != 0, place);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) ballot |= unsigned(values[lane]) << lane;
  }
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate, emulation::Place place = emulation::Place::current()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulation::Place place = emulation::Place::current()) {
  return __ballot_sync(mask, predicate, place) == mask;
}
// The lanes of the mask that hold the same value.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, emulation::Place place = emulation::Place::current()) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const uint64_t* values = emulation::exchange(mask, bits, place);
  unsigned match = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1 && values[lane] == bits) match |= 1u << lane;
  }
  return match;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
inline int __clzll(long long bits) {
  return bits == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(bits));
}

template <class T>
T __ldg(const T* address) {
  return *address;
}

// --------------------------------------------------------------------------------------------------- atomics

#include <cuda/atomic>

namespace emulation {
// The value is converted to the word's type, as CUDA's overloads do.
template <class T>
using Word = std::type_identity_t<T>;
template <class T>
using Atomic = ::cuda::atomic_ref<T, ::cuda::thread_scope_device>;
}  // namespace emulation

template <class T>
T atomicAdd(T* address, emulation::Word<T> value) {
  return emulation::Atomic<T>(*address).fetch_add(value, ::cuda::std::memory_order_relaxed);
}
template <class T>
T atomicMax(T* address, emulation::Word<T> value) {
  return emulation::Atomic<T>(*address).fetch_max(value, ::cuda::std::memory_order_relaxed);
}
template <class T>
T atomicMin(T* address, emulation::Word<T> value) {
  return emulation::Atomic<T>(*address).fetch_min(value, ::cuda::std::memory_order_relaxed);
}
template <class T>
T atomicOr(T* address, emulation::Word<T> value) {
  return emulation::Atomic<T>(*address).fetch_or(value, ::cuda::std::memory_order_relaxed);
}
template <class T>
T atomicAnd(T* address, emulation::Word<T> value) {
  return emulation::Atomic<T>(*address).fetch_and(value, ::cuda::std::memory_order_relaxed);
}
template <class T>
T atomicExch(T* address, emulation::Word<T> value) {
  return emulation::Atomic<T>(*address).exchange(value, ::cuda::std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* address, emulation::Word<T> expected, emulation::Word<T> desired) {
  emulation::Atomic<T>(*address).compare_exchange_strong(expected, desired,
                                                         ::cuda::std::memory_order_relaxed);
  return expected;
}

// ------------------------------------------------------------------------------------------ the host's side

// Streams run in order and at once, so there is nothing to wait for.
using cudaStream_t = struct emulated_stream*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorLaunchFailure = 719 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

inline cudaError_t cudaGetLastError() {
  return emulation::record.failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess             ? "no error"
         : error == cudaErrorInvalidValue ? "invalid argument"
                                          : emulation::record.failure.c_str();
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  const emulation::OnDevice on_device;
  std::memcpy(to, from, bytes);
  if (emulation::observer) {
    const int64_t read = kind == cudaMemcpyHostToDevice ? 0 : int64_t(bytes),
                  written = kind == cudaMemcpyDeviceToHost ? 0 : int64_t(bytes);
    emulation::observer->launched("copy", 1, read, written);
  }
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t = nullptr) {
  const emulation::OnDevice on_device;
  std::memset(to, byte, bytes);
  if (emulation::observer) emulation::observer->launched("memset", 1, 0, int64_t(bytes));
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (emulation::observer) emulation::observer->waited();
  return cudaSuccess;
}
