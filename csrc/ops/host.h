// What the host sides of the operators share. Each file of this folder is one operator for both devices: it
// checks the arguments, makes the results and calls `<operator>_kernel(device.run, ...)`, which cpu/ and
// cuda/ define for their own `Device`.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include <tuple>
#include <vector>

#include "../checks.h"

// Runs the function with `scalar_t` as the tensor's type.
#define GPN_DISPATCH(tensor, name, ...)                                                  \
  THO_DISPATCH_V2((tensor).scalar_type(), name, AT_WRAP(__VA_ARGS__), AT_FLOATING_TYPES, \
                  torch::headeronly::ScalarType::Half, torch::headeronly::ScalarType::BFloat16)

namespace gpn {

using torch::stable::contiguous;

// An uninitialised tensor. Where there is no room for it, errors_of_torch.h adds what torch says.
inline Tensor new_empty(const Tensor& like, const std::vector<int64_t>& shape, ScalarType type) {
  try {
    return torch::stable::new_empty(like, shape, type);
  } catch (const std::exception&) {
    std::ostringstream sizes;
    for (size_t d = 0; d < shape.size(); ++d) sizes << (d ? ", " : "") << shape[d];
    fail("out of memory: no room for a tensor of shape [", sizes.str(), "] and dtype ", dtype_name(type),
         ", whose size follows from num_nodes, num_clusters, or the largest id where they are not given");
  }
}

// Memory from torch's allocator, for as long as the object lives.
template <class Device>
class Scratch {
 public:
  explicit Scratch(const Tensor& like) : like_(like) {}
  void* operator()(int64_t bytes) const {
    held_.push_back(Device::new_tensor(like_, {bytes}, ScalarType::Byte));
    return held_.back().mutable_data_ptr();
  }
  // For memory that may go sooner.
  Scratch nested() const { return Scratch(like_); }

 private:
  const Tensor& like_;
  mutable std::vector<Tensor> held_;
};

// edge_index as int64 with unit stride in each row; copied only where it is not.
inline Tensor readable(const Tensor& edge_index) {
  const Tensor wide = edge_index.scalar_type() == ScalarType::Long
                          ? edge_index
                          : torch::stable::to(edge_index, ScalarType::Long);
  return wide.size(1) <= 1 || wide.stride(1) == 1 ? wide : contiguous(wide);
}

inline const int64_t* row_of(const Tensor& readable_edge_index) {
  return readable_edge_index.const_data_ptr<int64_t>();
}
inline const int64_t* col_of(const Tensor& readable_edge_index) {
  return row_of(readable_edge_index) + readable_edge_index.stride(0);
}

inline Edges edges_of(const Tensor& readable_edge_index, int64_t num_nodes) {
  const int64_t count = readable_edge_index.size(1);
  if (num_nodes == 0 && count > 0) {
    fail("edge_index: expected no edges because num_nodes is 0, got ", count, " edges");
  }
  return {row_of(readable_edge_index), col_of(readable_edge_index), count, num_nodes};
}

// The same where the number of nodes may be left open: then the data are read for it.
template <class Device>
Edges edges_of(const Device& device, const Tensor& readable_edge_index, std::optional<int64_t> num_nodes) {
  if (num_nodes) return edges_of(readable_edge_index, *num_nodes);
  const int64_t found = count_nodes(device.run, row_of(readable_edge_index), col_of(readable_edge_index),
                                    readable_edge_index.size(1), Scratch<Device>(readable_edge_index));
  return edges_of(readable_edge_index, found);
}

inline Pairs pairs_of(const Tensor& readable_pairs, int64_t num_nodes) {
  return {row_of(readable_pairs), col_of(readable_pairs), readable_pairs.size(1), num_nodes};
}

// How many values a row has.
inline int64_t width_of(const Tensor& tensor) {
  int64_t width = 1;
  for (int64_t d = 1; d < tensor.dim(); ++d) width *= tensor.size(d);
  return width;
}

inline Segments<> segments_of(const Tensor& contiguous_cluster, int64_t width, int64_t num_clusters) {
  return {contiguous_cluster.const_data_ptr<int64_t>(), contiguous_cluster.size(0), width, num_clusters};
}

// An uninitialised tensor like another one, with another number of rows.
template <class Device>
Tensor new_rows(const Tensor& like, int64_t rows) {
  std::vector<int64_t> shape{rows};
  for (int64_t d = 1; d < like.dim(); ++d) shape.push_back(like.size(d));
  return Device::new_tensor(like, shape, like.scalar_type());
}

// An uninitialised integer a thing.
template <class Device>
Tensor new_ids(const Tensor& like, int64_t count) {
  return Device::new_tensor(like, {count}, ScalarType::Long);
}

// What `Sum` says, as a dtype.
inline ScalarType sum_type(const Tensor& tensor) {
  const ScalarType type = tensor.scalar_type();
  return type == ScalarType::Half || type == ScalarType::BFloat16 ? ScalarType::Float : type;
}

}  // namespace gpn
