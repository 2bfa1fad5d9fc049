// Random numbers by their place in a stream, so that they can be drawn again instead of being kept.
#pragma once

#include "platform.h"

namespace gpn {

// Number `place` of a stream of 64-bit words: SplitMix64, whose state is a counter.
GPN_HOST_DEVICE uint64_t random_word(uint64_t seed, uint64_t place) {
  uint64_t z = seed + (place + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Four elements share a word, 16 bits each: probabilities are multiples of 2^-16.
constexpr int64_t kLanes = 4;
constexpr int32_t kLaneValues = 1 << 16;

GPN_HOST_DEVICE uint16_t lane_of(uint64_t word, int64_t lane) { return uint16_t(word >> (16 * lane)); }

// What dropout does, with or without a ReLU before it: an element is multiplied by 0 where its 16 random bits
// are below `dropped`, else by `scale`. NaN stays NaN in either case, as in torch.
template <class T>
struct Dropout {
  int32_t dropped;  // of kLaneValues
  T scale;
  bool relu;

  GPN_HOST_DEVICE T factor(uint16_t bits) const { return bits < dropped ? T(0) : scale; }
  // The maximum, in the form that a processor has one instruction for.
  static GPN_HOST_DEVICE T positive(T x) { return T(0) > x ? T(0) : x; }
};

}  // namespace gpn
