// Loops over one block of edges that compilers vectorise: the part of a sweep that is the same for every
// edge. A block stays in the first-level cache, so it is checked first and used then at little cost.
#pragma once

#include <algorithm>

#include "../core/dominance.h"

// Each of these functions is compiled for plain x86-64 and for AVX2, and picked when the library is loaded.
// Sanitizers cannot start with such functions in place.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define GPN_VECTOR_CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define GPN_VECTOR_CLONES
#endif

namespace gpn::cpu {

constexpr int64_t kBlock = 256;

// Whether all ids lie in [0, num_nodes): the sign bit of id | (num_nodes - 1 - id) is set for those that do
// not.
GPN_VECTOR_CLONES
static inline bool ids_fit(const int64_t* id, int64_t count, int64_t num_nodes) {
  uint64_t signs = 0;
  for (int64_t i = 0; i < count; ++i) signs |= uint64_t(id[i]) | (uint64_t(num_nodes - 1) - uint64_t(id[i]));
  return int64_t(signs) >= 0;
}

// Whether the rows ascend and lie in [0, num_nodes).
GPN_VECTOR_CLONES
static inline bool rows_ascend(const int64_t* row, int64_t count, int64_t num_nodes) {
  uint64_t signs = 0;
  for (int64_t i = 1; i < count; ++i) signs |= uint64_t(row[i]) | (uint64_t(row[i]) - uint64_t(row[i - 1]));
  return int64_t(signs) >= 0 && row[0] >= 0 && row[count - 1] < num_nodes;
}

// Writes the codes of `count` scores; false if one is NaN.
GPN_VECTOR_CLONES
static inline bool encode(const float* scores, int64_t count, uint32_t* codes) {
  uint32_t nan = 0;
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = ordered(scores[i]);
    nan |= codes[i] == kNanCode;
  }
  return !nan;
}

GPN_VECTOR_CLONES
static inline bool encode(const double* scores, int64_t count, uint64_t* codes) {
  uint64_t nan = 0;
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = ordered(scores[i]);
    nan |= codes[i] == kNanCode;
  }
  return !nan;
}

template <class Half>
bool encode(const Half* scores, int64_t count, uint32_t* codes) {
  float wide[kBlock];
  for (int64_t i = 0; i < count; ++i) wide[i] = float(scores[i]);
  return encode(wide, count, codes);
}

GPN_VECTOR_CLONES
static inline uint32_t highest(const uint32_t* codes, int64_t count) {
  uint32_t best = 0;
  for (int64_t i = 0; i < count; ++i) best = codes[i] > best ? codes[i] : best;
  return best;
}

GPN_VECTOR_CLONES
static inline uint64_t highest(const uint64_t* codes, int64_t count) {
  uint64_t best = 0;
  for (int64_t i = 0; i < count; ++i) best = codes[i] > best ? codes[i] : best;
  return best;
}

}  // namespace gpn::cpu
