// Values of a run, as both a plain solver in float64 and the emulated device take them. Include
// <cuda_runtime.h> first.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "core/sums.h"
#include "cuda/launch.cuh"
#include "device.h"

namespace gpn::test {

using cuda::Launcher;
using emulation::Random;

using Values = std::vector<double>;

// As the types of a run hold them, so that both sides compute with the same numbers.
template <class T>
Values random_values(Random& random, int64_t count) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(double(Sum<T>(T(Sum<T>((double(random.below(2001)) - 1000) / 800)))));
  }
  return values;
}

template <class T>
const T* on_device(const Values& values, const Scratch& memory) {
  std::vector<T> typed;
  for (const double value : values) typed.push_back(T(Sum<T>(value)));
  return memory.copy(typed);
}

// So near that float32 may be the reason, by the largest of them.
template <class T>
bool near(const T* actual, const Values& expected) {
  const double most = sizeof(T) == 8 ? 1e-9 : sizeof(T) == 4 ? 1e-3 : 2e-2;
  double highest = 1;
  for (const double value : expected) highest = std::max(highest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!(std::abs(double(Sum<T>(actual[i])) - expected[i]) <= most * highest)) return false;
  }
  return true;
}

inline Launcher random_launcher(Random& random) {
  // Few blocks, so that they take many chunks; short chunks, so that nodes have parts in several.
  return {nullptr, random.of<int>({32, 64, 96, 256}), random.of<int64_t>({1, 2, 3, cuda::kMaxBlocks}),
          random.of<int>({Launcher().piece_bits, 1, 2, 4})};
}

template <class T>
bool same_bits(const T* a, const T* b, int64_t count) {
  return std::memcmp(a, b, size_t(count) * sizeof(T)) == 0;
}

}  // namespace gpn::test
