// The few words that differ between a host compiler and nvcc. Everything in core/ is free of torch and works
// on raw pointers, so that one text of the algorithm serves the CPU, CUDA and the C++ tests.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define GPN_HOST_DEVICE __host__ __device__ __forceinline__
#define GPN_UNROLL _Pragma("unroll")
#define GPN_NO_UNROLL _Pragma("unroll 1")
#else
#define GPN_HOST_DEVICE inline
#define GPN_UNROLL
#define GPN_NO_UNROLL
#endif

// A place where another thread may run next. The tests on the CPU define it to explore schedules; it is empty
// elsewhere. Those that run the CUDA kernels there also define GPN_EMULATED_CUDA, which chooses the device's
// text where there are two.
#if !defined(GPN_SCHEDULE_POINT)
#define GPN_SCHEDULE_POINT()
#endif

namespace gpn {

template <class To, class From>
GPN_HOST_DEVICE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// Room for `count` values. `scratch(bytes)` gives memory that lasts as long as the work that uses it.
template <class T, class Scratch>
T* room(const Scratch& scratch, int64_t count) {
  return static_cast<T*>(scratch(count * int64_t(sizeof(T))));
}

}  // namespace gpn
