// gpn::dominant, the dominant edge of every node.
#pragma once

#include "parse.h"

namespace gpn {

inline Form form_of(const std::string& form) {
  if (form == "auto") return Form::kAutomatic;
  if (form == "packed") return Form::kPacked;
  if (form == "wide") return Form::kWide;
  fail("form: expected 'auto', 'packed' or 'wide', got '", form, "'");
}

template <class Device>
Tensor dominant_by(const Tensor& given_edge_index, const Tensor& given_scores,
                   std::optional<int64_t> num_nodes, Form form, int64_t first_edge) {
  check_parse(given_edge_index, given_scores, num_nodes);
  const Device device(given_edge_index);
  const Tensor edge_index = readable(given_edge_index), scores = contiguous(given_scores);
  const Edges edges = edges_of(device, edge_index, num_nodes);
  const Tensor edge = new_ids<Device>(edge_index, edges.num_nodes);
  GPN_DISPATCH(scores, "gpn::dominant", [&] {
    dominant_kernel(device.run, edges, scores.const_data_ptr<scalar_t>(), form, first_edge,
                    edge.mutable_data_ptr<int64_t>(), Scratch<Device>(edge));
  });
  return edge;
}

template <class Device>
Tensor dominant(const Tensor& edge_index, const Tensor& scores, std::optional<int64_t> num_nodes) {
  return dominant_by<Device>(edge_index, scores, num_nodes, Form::kAutomatic, 0);
}

template <class Device>
Tensor dominant_form(const Tensor& edge_index, const Tensor& scores, int64_t num_nodes,
                     const std::string& form, int64_t first_edge) {
  return dominant_by<Device>(edge_index, scores, num_nodes, form_of(form), first_edge);
}

}  // namespace gpn
