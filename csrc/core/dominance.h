// Which edge dominates: the order of scores, and the keys in which one integer maximum settles score and tie at once.
#pragma once

#include "platform.h"

namespace gpn {

// Scores as unsigned integers in the same order: -inf < ... < -0 == +0 < ... < +inf. NaN comes below -inf, and 0 is left free
// to mean 'no edge'.
constexpr uint32_t kNanCode = 1;

GPN_HOST_DEVICE uint32_t ordered(float score) {
  if (score != score) return kNanCode;
  const uint32_t bits = bit_cast<uint32_t>(score + 0.0f);  // -0 + 0 is +0: the two zeros tie
  return bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);
}

GPN_HOST_DEVICE uint64_t ordered(double score) {
  if (score != score) return kNanCode;
  const uint64_t bits = bit_cast<uint64_t>(score + 0.0);
  return bits ^ (uint64_t(int64_t(bits) >> 63) | 0x8000000000000000u);
}

// The packed key: score above, complement of the edge id below, so that the lowest id wins among equal scores.
// For 32-bit codes and ids below 2^32. 0 means 'no edge'.
GPN_HOST_DEVICE uint64_t packed_key(uint32_t code, uint64_t edge) { return uint64_t(code) << 32 | uint32_t(~edge); }
GPN_HOST_DEVICE uint64_t packed_edge(uint64_t key) { return uint32_t(~key); }

// Ids below this fit the packed key.
constexpr int64_t kPackedEdges = int64_t(1) << 32;

enum class Form {
  kAutomatic,  // packed if score and ids fit, else wide (the CPU tries a sweep without keys first)
  kPacked,     // one 64-bit key a node holds score and edge id
  kWide,       // a 64-bit score and then a 64-bit edge id a node, in two passes
};

}  // namespace gpn
