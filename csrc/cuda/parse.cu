// gpn::parse, gpn::dominant and gpn::components for CUDA tensors: checks, dtype dispatch, memory, device and
// stream around dominant.cuh and components.cuh.
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include <limits>

#include "components.cuh"
#include "dominant.cuh"
#include "torch_device.h"

namespace gpn::cuda {
namespace {

// The largest id plus one. The only place of this file that waits for the device.
int64_t count_nodes(const Launcher& launch, const Tensor& like, const int64_t* row, const int64_t* col,
                    int64_t count) {
  const Tensor largest = empty_like_on(like, 1, ScalarType::Long);
  int64_t* on_device = largest.mutable_data_ptr<int64_t>();
  launch(fill<int64_t>, 1, on_device, 1, -1);
  launch(raise_largest<int64_t>, count, row, count, on_device);
  launch(raise_largest<int64_t>, count, col, count, on_device);
  int64_t on_host = -1;
  Launcher::check(
      cudaMemcpyAsync(&on_host, on_device, sizeof(on_host), cudaMemcpyDeviceToHost, launch.stream));
  Launcher::check(cudaStreamSynchronize(launch.stream));
  return on_host + 1;
}

// What every kernel of this file starts from, after all checks that need no data.
struct Input : OnDevice {
  Tensor edge_index;
  Edges edges;

  Input(const Tensor& given, std::optional<int64_t> num_nodes)
      : OnDevice(given), edge_index(readable(given)) {
    const int64_t* row = row_of(edge_index);
    const int64_t* col = col_of(edge_index);
    const int64_t count = edge_index.size(1);
    if (num_nodes == 0 && count > 0) {
      fail("edge_index: expected no edges because num_nodes is 0, got ", count, " edges");
    }
    edges = {row, col, count, num_nodes ? *num_nodes : count_nodes(launch, edge_index, row, col, count)};
  }
};

Input checked(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  check_edge_index(edge_index);
  check_scores(scores, edge_index);
  check_num_nodes(num_nodes);
  return Input(edge_index, num_nodes);
}

template <class Keep>
Tensor dominant_by(const Input& input, const Tensor& given_scores, Keep keep, Form form, int64_t first_edge) {
  const Tensor scores = torch::stable::contiguous(given_scores);
  const Tensor kept = empty_like_on(input.edge_index, input.edges.num_nodes, ScalarType::Long);
  THO_DISPATCH_V2(scores.scalar_type(), "gpn::dominant", AT_WRAP([&] {
                    dominant(input.launch, input.edges, scores.const_data_ptr<scalar_t>(), keep, form,
                             first_edge, kept.mutable_data_ptr<int64_t>(), Scratch(kept));
                  }),
                  AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
  return kept;
}

Tensor parse_cuda(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  const Input input = checked(edge_index, scores, num_nodes);
  // One buffer holds the keys, then each node's choice, then its cluster.
  const Tensor cluster = dominant_by(input, scores, KeepColumn{input.edges.col}, Form::kAutomatic, 0);
  int64_t* choice = cluster.mutable_data_ptr<int64_t>();
  if (input.edges.num_nodes <= std::numeric_limits<int32_t>::max()) {
    label_choices<int32_t>(input.launch, choice, input.edges.num_nodes, choice, Scratch(cluster));
  } else {
    label_choices<int64_t>(input.launch, choice, input.edges.num_nodes, choice, Scratch(cluster));
  }
  return cluster;
}

Tensor dominant_cuda(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  return dominant_by(checked(edge_index, scores, num_nodes), scores, KeepEdge{0}, Form::kAutomatic, 0);
}

Tensor dominant_form_cuda(const Tensor& edge_index, const Tensor& scores, int64_t num_nodes,
                          const std::string& form, int64_t first_edge) {
  return dominant_by(checked(edge_index, scores, num_nodes), scores, KeepEdge{first_edge}, form_of(form),
                     first_edge);
}

Tensor components_cuda(const Tensor& edge_index, std::optional<int64_t> num_nodes) {
  check_edge_index(edge_index);
  check_num_nodes(num_nodes);
  const Input input(edge_index, num_nodes);
  const Tensor label = empty_like_on(input.edge_index, input.edges.num_nodes, ScalarType::Long);
  if (input.edges.num_nodes <= std::numeric_limits<int32_t>::max()) {
    label_edges<int32_t>(input.launch, input.edges, label.mutable_data_ptr<int64_t>(), Scratch(label));
  } else {
    label_edges<int64_t>(input.launch, input.edges, label.mutable_data_ptr<int64_t>(), Scratch(label));
  }
  return label;
}

}  // namespace
}  // namespace gpn::cuda

STABLE_TORCH_LIBRARY_IMPL(gpn, CUDA, m) {
  m.impl("parse", TORCH_BOX(&gpn::cuda::parse_cuda));
  m.impl("dominant", TORCH_BOX(&gpn::cuda::dominant_cuda));
  m.impl("components", TORCH_BOX(&gpn::cuda::components_cuda));
  m.impl("_dominant", TORCH_BOX(&gpn::cuda::dominant_form_cuda));
}
