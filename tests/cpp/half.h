// Floats of 16 bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace gpn::test {

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

}  // namespace gpn::test
