// In what type values are summed, and how maxima are compared, on both devices.
#pragma once

#include <type_traits>

#include "platform.h"

namespace gpn {

// Half precision is summed in float32 and rounded once, at the end.
template <class T>
using Sum = std::conditional_t<sizeof(T) == 2, float, T>;

// Whether `value` takes the place of `best` as the maximum. NaN is above all, so that it is not lost.
template <class T>
GPN_HOST_DEVICE bool above(T value, T best) {
  return Sum<T>(value) > Sum<T>(best) || Sum<T>(value) != Sum<T>(value);
}

// Whether a value is the maximum that came out.
template <class T>
GPN_HOST_DEVICE bool equals_maximum(T value, T maximum) {
  return Sum<T>(value) == Sum<T>(maximum) ||
         (Sum<T>(value) != Sum<T>(value) && Sum<T>(maximum) != Sum<T>(maximum));
}

enum class Reduction { kSum, kMean, kMax };

}  // namespace gpn
