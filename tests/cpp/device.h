// Stand-ins for what a GPU gives: memory, and score types of 16 bits. Include <cuda_runtime.h> first.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "emulation/emulation.h"
#include "half.h"

namespace gpn::test {

// Memory of exactly the size that was asked for, so that AddressSanitizer sees the first access past it, and
// full of garbage, as device memory is.
class Scratch {
 public:
  explicit Scratch(uint64_t seed = 0) : random_(seed) {}

  void* operator()(int64_t bytes) const {
    held_.emplace_back(static_cast<unsigned char*>(std::malloc(size_t(bytes))), &std::free);
    for (int64_t i = 0; i < bytes; ++i) held_.back().get()[i] = static_cast<unsigned char>(random_());
    total += bytes;
    return held_.back().get();
  }
  template <class T>
  T* array(int64_t count) const {
    return static_cast<T*>((*this)(count * int64_t(sizeof(T))));
  }
  template <class T>
  T* copy(const std::vector<T>& from) const {
    T* to = array<T>(int64_t(from.size()));
    std::copy(from.begin(), from.end(), to);
    return to;
  }

  mutable int64_t total = 0;  // bytes given so far

 private:
  mutable emulation::Random random_;
  mutable std::vector<std::unique_ptr<unsigned char, void (*)(void*)>> held_;
};

template <class T>
std::vector<T> to_host(const T* from, int64_t count) {
  return std::vector<T>(from, from + count);
}

// Planted bugs (mutants.py) are looked for with two dtypes, which halves the time to compile.
#if defined(GPN_OPS_TWO_DTYPES)
using ThirdDtype = float;
using FourthDtype = double;
#else
using ThirdDtype = Half;
using FourthDtype = BFloat16;
#endif

}  // namespace gpn::test
