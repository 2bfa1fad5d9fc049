// The MLP of an edge scorer: (Linear, LayerNorm, ReLU, dropout)*, Linear, on raw pointers.
#pragma once

#include <array>
#include <vector>

#include "platform.h"
#include "random.h"

namespace gpn {

constexpr double kLayerNormEps = 1e-5;

// Every hidden layer draws its dropout from a range of places of its own.
constexpr int64_t kPlacesLog2 = 48;

// A hidden layer but for the weight of its Linear. Each: [width]; without a LayerNorm, null.
template <class W>
struct HiddenLayer {
  const W* bias;
  const W* norm_weight;
  const W* norm_bias;
};

template <class W>
struct Scorer {
  std::vector<HiddenLayer<W>> hidden;
  const W* weight;  // [width], of the last layer
  const W* bias;    // one
  int64_t width;
  Dropout<W> dropout;   // with its ReLU
  const int64_t* seed;  // null where nothing is dropped

  int64_t layers() const { return int64_t(hidden.size()); }
  // The place of the first value of a row.
  static GPN_HOST_DEVICE int64_t place(int64_t layer, int64_t row, int64_t width) {
    return (layer << kPlacesLog2) + row * width;
  }
};

// Where the gradients of a hidden layer's bias, norm weight and norm bias go, and, for the last one, that of
// the weight after it; else null.
template <class W>
using ColumnGradients = std::array<W*, 4>;

}  // namespace gpn
