// Classifies a batch of graphs with a package that export.py wrote. It needs no Python, only torch and
// libgpn_ops.so.
//
//     classify classifier.pt2 batch.pt

#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

// As gpn_ops.nn.pad: appends one graph, of nodes with zero features and self-loops on them.
std::vector<at::Tensor> pad(
    at::Tensor x, at::Tensor edge_index, at::Tensor batch, int64_t nodes, int64_t edges, int64_t batch_size) {
  const int64_t more_nodes = nodes - x.size(0), more_edges = edges - edge_index.size(1);
  if (more_nodes < 1 || more_edges < 0) {
    throw std::runtime_error("batch: expected one that fits into the sizes of the package");
  }
  const at::Tensor loops = x.size(0) + at::arange(more_edges, at::kLong).div(2, "floor").remainder(more_nodes);
  return {
      at::cat({x, x.new_zeros({more_nodes, x.size(1)})}), at::cat({edge_index, loops.expand({2, -1})}, 1),
      at::cat({batch, batch.new_full({more_nodes}, batch_size)})};
}

int main(int argc, char** argv) try {
  if (argc != 3) {
    throw std::runtime_error("usage: classify PACKAGE BATCH");
  }
  torch::inductor::AOTIModelPackageLoader package(argv[1]);
  auto metadata = package.get_metadata();
  const auto size = [&](const char* name) { return std::stoll(metadata.at(name)); };

  std::ifstream file(argv[2], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto graphs = torch::jit::pickle_load(bytes).toGenericDict();
  const auto tensor = [&](const char* name) { return graphs.at(name).toTensor(); };

  const auto results = package.run(pad(
      tensor("x"), tensor("edge_index"), tensor("batch"), size("nodes"), size("edges"), size("batch_size")));
  if (results[1].item<bool>()) {  // The logits are NaN.
    throw std::runtime_error("batch: expected graphs that fit into every level of the package");
  }
  std::cout.precision(9);
  for (int64_t graph = 0; graph < results[0].size(0); ++graph) {
    const at::Tensor logits = results[0][graph];
    std::cout << logits.argmax().item<int64_t>();
    for (int64_t k = 0; k < logits.numel(); ++k) {
      std::cout << ' ' << logits[k].item<float>();
    }
    std::cout << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
