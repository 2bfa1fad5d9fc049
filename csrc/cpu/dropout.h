// Dropout by an element's place, on the CPU.
#pragma once

#include <array>
#include <bit>

#include "../core/random.h"
#include "../core/sums.h"
#include "parallel.h"

namespace gpn::cpu {

// Places a block of which the random bits are drawn at a time.
constexpr int64_t kDropoutBlock = 512;

// out[i] is what becomes of x[i], whose place is first + i. Both may be the same.
template <class Parallel, class T>
void dropout_kernel(const Parallel& parallel, const Dropout<Sum<T>>& given, const int64_t* seed,
                    int64_t first, int64_t count, const T* x, T* out) {
  const uint64_t stream = uint64_t(*seed);
  for_each_piece(parallel, count, [=](int64_t begin, int64_t end) {
    const Dropout<Sum<T>> dropout = given;  // one that no store can change
    // Several short loops without branches: the compiler makes vector code of them.
    static_assert(std::endian::native == std::endian::little, "words are read as their lanes");
    std::array<uint64_t, kDropoutBlock / kLanes> words;
    std::array<uint16_t, kDropoutBlock> bits;
    std::array<Sum<T>, kDropoutBlock> factor;
    while (begin < end) {
      const int64_t word = (first + begin) / kLanes, skip = (first + begin) % kLanes;
      const int64_t size = std::min(end - begin, kDropoutBlock - skip);
      const int64_t num_words = (skip + size + kLanes - 1) / kLanes;
      for (int64_t w = 0; w < num_words; ++w) words[size_t(w)] = random_word(stream, uint64_t(word + w));
      std::memcpy(bits.data(), words.data(), size_t(num_words) * sizeof(words[0]));
      for (int64_t i = 0; i < size; ++i) factor[size_t(i)] = dropout.factor(bits[size_t(skip + i)]);
      if (dropout.relu) {
        for (int64_t i = 0; i < size; ++i) {
          out[begin + i] = T(Dropout<Sum<T>>::positive(Sum<T>(x[begin + i])) * factor[size_t(i)]);
        }
      } else {
        for (int64_t i = 0; i < size; ++i) out[begin + i] = T(Sum<T>(x[begin + i]) * factor[size_t(i)]);
      }
      begin += size;
    }
  });
}

}  // namespace gpn::cpu
