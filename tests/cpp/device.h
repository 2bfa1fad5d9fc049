// Stand-ins for what a GPU gives: memory, and score types of 16 bits. Include <cuda_runtime.h> first.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "emulation/emulation.h"

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

inline float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Both round towards zero: what matters to the kernels is that they are 16 bits wide and turn into float.
class BFloat16 {
 public:
  BFloat16() = default;
  explicit BFloat16(double value) : bits_(uint16_t(bits_of_float(float(value)) >> 16)) {}
  operator float() const { return float_of_bits(uint32_t(bits_) << 16); }

 private:
  uint16_t bits_;
};

class Half {
 public:
  Half() = default;
  explicit Half(double value) {
    const uint32_t bits = bits_of_float(float(value));
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      bits_ = uint16_t(sign | 0x7e00);  // NaN
    } else if (magnitude >= 0x47800000) {
      bits_ = uint16_t(sign | 0x7c00);  // 2^16 and above: infinity
    } else if (magnitude >= 0x38800000) {
      bits_ = uint16_t(sign | ((magnitude - 0x38000000) >> 13));
    } else {
      bits_ = uint16_t(sign |
                       uint32_t(float_of_bits(magnitude) * 16777216.0f));  // below 2^-14: multiples of 2^-24
    }
  }
  operator float() const {
    const uint32_t sign = uint32_t(bits_ & 0x8000) << 16, magnitude = bits_ & 0x7fff;
    if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x0400) return float_of_bits(sign | ((magnitude << 13) + 0x38000000));
    return float_of_bits(sign | bits_of_float(float(magnitude) / 16777216.0f));
  }

 private:
  uint16_t bits_;
};

// Planted bugs (mutants.py) are looked for with two dtypes, which halves the time to compile.
#if defined(GPN_OPS_TWO_DTYPES)
using ThirdDtype = float;
using FourthDtype = double;
#else
using ThirdDtype = Half;
using FourthDtype = BFloat16;
#endif

}  // namespace gpn::test
