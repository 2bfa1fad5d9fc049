// Which edge dominates: the order of scores, and the keys in which one integer maximum settles score and tie
// at once.
#pragma once

#include <type_traits>

#include "edges.h"

namespace gpn {

// Scores as unsigned integers in the same order: -inf < ... < -0 == +0 < ... < +inf. NaN comes below -inf,
// and 0 is left free to mean 'no edge'.
constexpr uint32_t kNanCode = 1;

GPN_HOST_DEVICE uint32_t ordered(float score) {
  const uint32_t bits = bit_cast<uint32_t>(score);
  const uint32_t sign = uint32_t(int32_t(bits) >> 31);  // all ones below zero
  // Sign and magnitude become one number, in which the two zeros are the same. On the bits alone: a sum would
  // flush subnormal scores in the threads that are set to.
  const uint32_t code = 0x80000000u + ((bits & 0x7fffffffu) ^ sign) - sign;
  return bits << 1 > 0xff000000u ? kNanCode : code;  // the test on bits vectorises, score != score does not
}

GPN_HOST_DEVICE uint64_t ordered(double score) {
  const uint64_t bits = bit_cast<uint64_t>(score);
  const uint64_t sign = uint64_t(int64_t(bits) >> 63);
  const uint64_t code = 0x8000000000000000u + ((bits & 0x7fffffffffffffffu) ^ sign) - sign;
  return bits << 1 > 0xffe0000000000000u ? kNanCode : code;
}

// The code of any score type: 32 bits, or 64 for float64.
template <class Score>
using Code = std::conditional_t<sizeof(Score) == 8, uint64_t, uint32_t>;

template <class Score>
GPN_HOST_DEVICE Code<Score> code_of(Score score) {
  if constexpr (sizeof(Score) == 8) {
    return ordered(double(score));
  } else {
    return ordered(float(score));
  }
}

// The packed key: score above, complement of the edge id below, so that the lowest id wins among equal
// scores. For 32-bit codes and ids below 2^32. 0 means 'no edge'.
GPN_HOST_DEVICE uint64_t packed_key(uint32_t code, uint64_t edge) {
  return uint64_t(code) << 32 | uint32_t(~edge);
}
GPN_HOST_DEVICE uint64_t packed_edge(uint64_t key) { return uint32_t(~key); }

// Ids below this fit the packed key.
constexpr int64_t kPackedEdges = int64_t(1) << 32;

enum class Form {
  kAutomatic,  // packed if score and ids fit, else wide (the CPU tries a sweep without keys first)
  kPacked,     // one 64-bit key a node holds score and edge id
  kWide,       // a 64-bit score and then a 64-bit edge id a node, in two passes
};

// The wide form's 'no edge'.
constexpr int64_t kNoEdge = INT64_MAX;

// What a node keeps of its dominant edge, by the edge's position in the list.
struct KeepEdge {
  int64_t first;  // the id of the edge at position 0
  GPN_HOST_DEVICE int64_t operator()(int64_t edge) const { return first + edge; }
};
struct KeepColumn {
  const int64_t* col;
  GPN_HOST_DEVICE int64_t operator()(int64_t edge) const { return col[edge]; }
};

}  // namespace gpn
