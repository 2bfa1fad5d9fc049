// gpn::parse, gpn::dominant and gpn::components for CPU tensors: checks, dtype dispatch and memory around
// dominant.h and components.h.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include <limits>

#include "components.h"
#include "dominant.h"
#include "torch_threads.h"

namespace gpn::cpu {
namespace {

// The largest id plus one; fails on a negative id.
int64_t count_nodes(const int64_t* row, const int64_t* col, int64_t count) {
  const TorchThreads parallel;
  const Pieces pieces = cut(parallel, count);
  std::vector<int64_t> largest(pieces.tasks, -1);
  std::atomic<bool> negative = false;
  parallel(pieces.tasks, [&](int64_t t) {
    int64_t most = -1, signs = 0;
    for (int64_t i = pieces.begin(t); i < pieces.end(t); ++i) {
      most = std::max(most, std::max(row[i], col[i]));
      signs |= row[i] | col[i];
    }
    largest[t] = most;
    if (signs < 0) negative = true;
  });
  if (negative) {
    for (int64_t i = 0; i < count; ++i) {
      if (row[i] < 0)
        fail("edge_index: expected non-negative node ids, got ", row[i], " at edge_index[0, ", i, "]");
      if (col[i] < 0)
        fail("edge_index: expected non-negative node ids, got ", col[i], " at edge_index[1, ", i, "]");
    }
  }
  return *std::max_element(largest.begin(), largest.end()) + 1;
}

Edges edges_of(const Tensor& readable_edge_index, std::optional<int64_t> num_nodes) {
  const int64_t* row = row_of(readable_edge_index);
  const int64_t* col = col_of(readable_edge_index);
  const int64_t count = readable_edge_index.size(1);
  if (num_nodes == 0 && count > 0) {
    fail("edge_index: expected no edges because num_nodes is 0, got ", count, " edges");
  }
  return {row, col, count, num_nodes ? *num_nodes : count_nodes(row, col, count)};
}

void report_bad_ids(const Edges& edges) {
  report_bad_ends("edge_index", edges.row, edges.col, edges.count, edges.num_nodes);
}

// Called when a kernel has met a bad value: names the first one, ids before scores.
template <class Score>
[[noreturn]] void report_bad_values(const Edges& edges, const Score* scores) {
  report_bad_ids(edges);
  for (int64_t i = 0; i < edges.count; ++i) {
    if (code_of(scores[i]) == kNanCode) fail("scores: expected no NaN, got NaN at scores[", i, "]");
  }
  fail("edge_index: changed while it was read");
}

// What every kernel of this file starts from, after all checks that need no data.
struct Input {
  Tensor edge_index;
  Tensor scores;
  Edges edges;

  Input(const Tensor& given_edge_index, const Tensor& given_scores, std::optional<int64_t> num_nodes) {
    check_edge_index(given_edge_index);
    check_scores(given_scores, given_edge_index);
    check_num_nodes(num_nodes);
    edge_index = readable(given_edge_index);
    scores = torch::stable::contiguous(given_scores);
    edges = edges_of(edge_index, num_nodes);
  }
};

// Runs f(scores, wide_scratch), which reads the edges' values, and reports what was bad.
template <class F>
void read_values(const Input& input, const F& f) {
  Tensor ids;
  const auto wide_scratch = [&] {
    ids = empty_like_on(input.edge_index, input.edges.num_nodes, ScalarType::Long);
    return ids.mutable_data_ptr<int64_t>();
  };
  THO_DISPATCH_V2(input.scores.scalar_type(), "gpn::dominant", AT_WRAP([&] {
                    const scalar_t* scores = input.scores.const_data_ptr<scalar_t>();
                    if (f(scores, wide_scratch) != Sweep::kDone) report_bad_values(input.edges, scores);
                  }),
                  AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
}

// Runs f with scratch for a forest over num_nodes nodes, in the narrowest type that holds them.
template <class F>
void with_forest(const Tensor& like, int64_t num_nodes, const F& f) {
  if (num_nodes <= std::numeric_limits<int32_t>::max()) {
    f(empty_like_on(like, num_nodes, ScalarType::Int).mutable_data_ptr<int32_t>());
  } else {
    f(empty_like_on(like, num_nodes, ScalarType::Long).mutable_data_ptr<int64_t>());
  }
}

Tensor parse_cpu(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  const Input input(edge_index, scores, num_nodes);
  const int64_t n = input.edges.num_nodes;
  const Tensor result = empty_like_on(input.edge_index, n, ScalarType::Long);
  int64_t* cluster = result.mutable_data_ptr<int64_t>();
  with_forest(result, n, [&]<class Node>(Node* parent) {
    read_values(input, [&](const auto* scores, const auto& wide_scratch) {
      return choices(TorchThreads(), input.edges, scores, cluster, parent, wide_scratch);
    });
    connect_choices(TorchThreads(), reinterpret_cast<const Node*>(cluster), n, parent);
    label_components(TorchThreads(), parent, n, cluster);
  });
  return result;
}

Tensor dominant_with(const Input& input, Form form, int64_t first_edge) {
  const Tensor edge = empty_like_on(input.edge_index, input.edges.num_nodes, ScalarType::Long);
  read_values(input, [&](const auto* scores, const auto& wide_scratch) {
    return dominant(TorchThreads(), input.edges, scores, KeepEdge{first_edge}, form, first_edge,
                    edge.mutable_data_ptr<int64_t>(), wide_scratch);
  });
  return edge;
}

Tensor dominant_cpu(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  return dominant_with(Input(edge_index, scores, num_nodes), Form::kAutomatic, 0);
}

Tensor dominant_form_cpu(const Tensor& edge_index, const Tensor& scores, int64_t num_nodes,
                         const std::string& form, int64_t first_edge) {
  return dominant_with(Input(edge_index, scores, num_nodes), form_of(form), first_edge);
}

Tensor components_cpu(const Tensor& given_edge_index, std::optional<int64_t> num_nodes) {
  check_edge_index(given_edge_index);
  check_num_nodes(num_nodes);
  const Tensor edge_index = readable(given_edge_index);
  const Edges edges = edges_of(edge_index, num_nodes);
  if (!all_ids_fit(TorchThreads(), edges)) report_bad_ids(edges);
  const Tensor label = empty_like_on(edge_index, edges.num_nodes, ScalarType::Long);
  with_forest(label, edges.num_nodes, [&](auto* parent) {
    connect_edges(TorchThreads(), edges, parent);
    label_components(TorchThreads(), parent, edges.num_nodes, label.mutable_data_ptr<int64_t>());
  });
  return label;
}

}  // namespace
}  // namespace gpn::cpu

STABLE_TORCH_LIBRARY_IMPL(gpn, CPU, m) {
  m.impl("parse", TORCH_BOX(&gpn::cpu::parse_cpu));
  m.impl("dominant", TORCH_BOX(&gpn::cpu::dominant_cpu));
  m.impl("components", TORCH_BOX(&gpn::cpu::components_cpu));
  m.impl("_dominant", TORCH_BOX(&gpn::cpu::dominant_form_cpu));
}
