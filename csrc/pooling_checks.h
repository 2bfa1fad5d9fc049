// Argument checks of the pooling operators, in the manner of checks.h.
#pragma once

#include <torch/headeronly/core/Dispatch_v2.h>

#include <initializer_list>
#include <vector>

#include "checks.h"
#include "core/sums.h"

// Runs the function with `scalar_t` as the tensor's type.
#define GPN_DISPATCH(tensor, name, ...)                                                  \
  THO_DISPATCH_V2((tensor).scalar_type(), name, AT_WRAP(__VA_ARGS__), AT_FLOATING_TYPES, \
                  torch::headeronly::ScalarType::Half, torch::headeronly::ScalarType::BFloat16)

namespace gpn {

inline void check_floating(const char* name, const Tensor& tensor) {
  const ScalarType type = tensor.scalar_type();
  if (type != ScalarType::Float && type != ScalarType::Double && type != ScalarType::Half &&
      type != ScalarType::BFloat16) {
    fail(name, ": expected a float32, float64, float16 or bfloat16 tensor, got ", dtype_name(type));
  }
}

inline void check_dtype(const char* name, const Tensor& tensor, ScalarType type) {
  if (tensor.scalar_type() != type) {
    fail(name, ": expected ", type == ScalarType::Long || type == ScalarType::Int ? "an " : "a ",
         dtype_name(type), " tensor, got ", dtype_name(tensor.scalar_type()));
  }
}

// One size of an expected shape: its name, and its value where that is known (else -1).
struct Size {
  const char* name;
  int64_t value = -1;
};

// Further dimensions are allowed if the last size is "...".
inline void check_shape(const char* name, const Tensor& tensor, std::initializer_list<Size> sizes) {
  const std::vector<Size> expected(sizes);
  const bool open = std::string(expected.back().name) == "...";
  const int64_t dims = int64_t(expected.size()) - open;
  bool fits = open ? tensor.dim() >= dims : tensor.dim() == dims;
  bool known = false;
  std::ostringstream names, values;
  for (size_t d = 0; d < expected.size(); ++d) {
    const Size& size = expected[d];
    if (size.value >= 0) {
      fits = fits && tensor.size(int64_t(d)) == size.value;
      known = true;
    }
    names << (d ? ", " : "[") << size.name;
    if (size.value >= 0) {
      values << (d ? ", " : "[") << size.value;
    } else {
      values << (d ? ", " : "[") << size.name;
    }
  }
  if (fits) return;
  const bool literal = names.str() == values.str() || !known;
  fail(name, ": expected shape ", names.str(), "]", literal ? "" : " = " + values.str() + "]", ", got ",
       shape_name(tensor));
}

inline void check_device(const char* name, const Tensor& tensor, const char* other_name,
                         const Tensor& other) {
  if (device_name(tensor) != device_name(other)) {
    fail(name, ": expected on the same device as ", other_name, " (", device_name(other), "), got ",
         device_name(tensor));
  }
}

inline void check_contiguous(const char* name, const Tensor& tensor) {
  if (!tensor.is_contiguous()) fail(name, ": expected a contiguous tensor, which is written in place");
}

inline void check_count(const char* name, int64_t count) {
  if (count < 0) fail(name, ": expected a non-negative integer, got ", count);
}

inline void check_cluster(const Tensor& cluster) {
  check_dtype("cluster", cluster, ScalarType::Long);
  check_shape("cluster", cluster, {{"num_nodes"}});
}

inline void check_cluster(const Tensor& cluster, const Tensor& edge_index) {
  check_cluster(cluster);
  check_device("cluster", cluster, "edge_index", edge_index);
}

inline Reduction reduction_of(const std::string& reduce) {
  if (reduce == "sum") return Reduction::kSum;
  if (reduce == "mean") return Reduction::kMean;
  if (reduce == "max") return Reduction::kMax;
  fail("reduce: expected 'sum', 'mean' or 'max', got '", reduce, "'");
}

// What `Sum` says, as a dtype.
inline ScalarType sum_type(const Tensor& tensor) {
  const ScalarType type = tensor.scalar_type();
  return type == ScalarType::Half || type == ScalarType::BFloat16 ? ScalarType::Float : type;
}

// How many values a row has.
inline int64_t width_of(const Tensor& tensor) {
  int64_t width = 1;
  for (int64_t d = 1; d < tensor.dim(); ++d) width *= tensor.size(d);
  return width;
}

// The shape of a tensor with another number of rows.
inline std::vector<int64_t> with_rows(const Tensor& tensor, int64_t rows) {
  std::vector<int64_t> shape{rows};
  for (int64_t d = 1; d < tensor.dim(); ++d) shape.push_back(tensor.size(d));
  return shape;
}

inline void check_x_and_cluster(const Tensor& x, const Tensor& cluster) {
  check_floating("x", x);
  check_cluster(cluster);
  check_shape("x", x, {{"num_nodes", cluster.size(0)}, {"..."}});
  check_device("cluster", cluster, "x", x);
}

inline void check_lift(const Tensor& x, const Tensor& cluster) {
  check_floating("x", x);
  check_shape("x", x, {{"num_clusters"}, {"..."}});
  check_cluster(cluster);
  check_device("cluster", cluster, "x", x);
}

// A tensor with the dtype and device of x, and rows like those of x.
inline void check_rows(const char* name, const Tensor& tensor, const Tensor& x, int64_t rows) {
  check_dtype(name, tensor, x.scalar_type());
  if (tensor.dim() != x.dim() || with_rows(tensor, tensor.size(0)) != with_rows(x, rows)) {
    fail(name, ": expected ", rows, " rows like those of x, ", shape_name(x), ", got ", shape_name(tensor));
  }
  check_device(name, tensor, "x", x);
}

// The edges of a graph of which every node has a cluster.
inline Edges pooled_edges(const Tensor& readable_edge_index, int64_t num_nodes) {
  const int64_t count = readable_edge_index.size(1);
  if (num_nodes == 0 && count > 0) {
    fail("edge_index: expected no edges because num_nodes is 0, got ", count, " edges");
  }
  return {row_of(readable_edge_index), col_of(readable_edge_index), count, num_nodes};
}

inline void check_pairs(const Tensor& h, const Tensor& pairs) {
  check_floating("h", h);
  check_shape("h", h, {{"num_nodes"}, {"channels"}});
  check_dtype("pairs", pairs, ScalarType::Long);
  check_shape("pairs", pairs, {{"2", 2}, {"num_pairs"}});
  check_device("pairs", pairs, "h", h);
}

inline void check_pair_dot(const Tensor& h, const Tensor& weight, const Tensor& pairs) {
  check_pairs(h, pairs);
  check_dtype("weight", weight, h.scalar_type());
  check_shape("weight", weight, {{"channels", h.size(1)}});
  check_device("weight", weight, "h", h);
}

inline void check_accumulate(const Tensor& out, const Tensor& x, const Tensor& cluster) {
  check_x_and_cluster(x, cluster);
  check_dtype("out", out, sum_type(x));
  if (out.dim() != x.dim() || out.dim() < 1 || with_rows(out, 0) != with_rows(x, 0)) {
    fail("out: expected shape [num_clusters, ...] with the row shape of x ", shape_name(x), ", got ",
         shape_name(out));
  }
  check_device("out", out, "x", x);
  check_contiguous("out", out);
}

inline void check_product_backward(const Tensor& grad_h, const Tensor& grad_product, const Tensor& h,
                                   const Tensor& pairs) {
  check_pairs(h, pairs);
  check_dtype("grad_h", grad_h, sum_type(h));
  check_shape("grad_h", grad_h, {{"num_nodes", h.size(0)}, {"channels", h.size(1)}});
  check_device("grad_h", grad_h, "h", h);
  check_contiguous("grad_h", grad_h);
  check_dtype("grad_product", grad_product, h.scalar_type());
  check_shape("grad_product", grad_product, {{"num_pairs", pairs.size(1)}, {"channels", h.size(1)}});
  check_device("grad_product", grad_product, "h", h);
}

}  // namespace gpn
