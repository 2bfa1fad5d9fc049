// LayerNorm(x + MLP(x)), the MLP being Linear (ReLU, dropout, Linear)*: a block of DeepSets, on raw pointers.
#pragma once

#include <vector>

#include "scorer.h"

namespace gpn {

template <class W>
struct Residual {
  std::vector<const W*> bias;  // of every Linear: [width]
  const W* norm_weight;        // [width]
  const W* norm_bias;          // [width]
  int64_t width;
  Dropout<W> dropout;   // with its ReLU
  const int64_t* seed;  // null where nothing is dropped

  int64_t layers() const { return int64_t(bias.size()); }
};

// What backward takes of `rows` rows: what comes out of each hidden layer; what goes into the LayerNorm, its
// mean and by which factor it is multiplied.
template <class W>
struct KeptRows {
  W* memory;
  int64_t rows, width, layers;

  static int64_t size(int64_t rows, int64_t width, int64_t layers) { return rows * (layers * width + 2); }
  // Of hidden layer `layer`; of the LayerNorm where that is the number of the last Linear.
  W* out(int64_t layer, int64_t row) const { return memory + (layer * rows + row) * width; }
  W* total(int64_t row) const { return out(layers - 1, row); }
  W* mean(int64_t row) const { return memory + layers * rows * width + row; }
  W* factor(int64_t row) const { return mean(row) + rows; }
};

// Where the gradients of the biases go, and of the LayerNorm's weight and bias. Each: [width].
template <class W>
struct ResidualGradients {
  std::vector<W*> bias;
  W* norm_weight;
  W* norm_bias;
};

}  // namespace gpn
