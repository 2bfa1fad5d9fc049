// Argument checks that need no data, for the host side of the operators (ops/). Every text names the
// argument, what was expected and what came; gpn_ops/checks.py has the same functions with the same texts,
// for fake tensors and plain PyTorch, and tests/test_errors.py compares the two.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cctype>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/errors.h"
#include "core/sums.h"

namespace gpn {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline std::string dtype_name(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return "uint8";
    case ScalarType::Char: return "int8";
    case ScalarType::Short: return "int16";
    case ScalarType::Int: return "int32";
    case ScalarType::Long: return "int64";
    case ScalarType::UInt16: return "uint16";
    case ScalarType::UInt32: return "uint32";
    case ScalarType::UInt64: return "uint64";
    case ScalarType::Half: return "float16";
    case ScalarType::BFloat16: return "bfloat16";
    case ScalarType::Float: return "float32";
    case ScalarType::Double: return "float64";
    case ScalarType::ComplexHalf: return "complex32";
    case ScalarType::ComplexFloat: return "complex64";
    case ScalarType::ComplexDouble: return "complex128";
    case ScalarType::Bool: return "bool";
    default: break;
  }
  std::string name = torch::headeronly::toString(type);  // 'Float8_e4m3fn' and its kin
  for (char& letter : name) letter = char(std::tolower(static_cast<unsigned char>(letter)));
  return name;
}

inline std::string shape_name(const Tensor& tensor) {
  std::ostringstream text;
  for (int64_t d = 0; d < tensor.dim(); ++d) text << (d ? ", " : "[") << tensor.size(d);
  return tensor.dim() ? text.str() + "]" : "[]";
}

inline std::string device_name(const Tensor& tensor) {
  if (tensor.is_cpu()) return "cpu";
  if (tensor.is_cuda()) return "cuda:" + std::to_string(tensor.get_device_index());
  return "another device";
}

// The dispatcher hands None on as a tensor without contents.
inline ScalarType dtype_of(const char* name, const Tensor& tensor) {
  if (!tensor.defined()) fail(name, ": expected a tensor, got None");
  return tensor.scalar_type();
}

inline void check_floating(const char* name, const Tensor& tensor) {
  const ScalarType type = dtype_of(name, tensor);
  if (type != ScalarType::Float && type != ScalarType::Double && type != ScalarType::Half &&
      type != ScalarType::BFloat16) {
    fail(name, ": expected a float32, float64, float16 or bfloat16 tensor, got ", dtype_name(type));
  }
}

inline void check_dtype(const char* name, const Tensor& tensor, ScalarType type) {
  if (dtype_of(name, tensor) != type) {
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
inline void check_shape(const char* name, const Tensor& tensor, std::initializer_list<Size> expected) {
  const bool open = std::string_view(std::data(expected)[expected.size() - 1].name) == "...";
  const int64_t dims = int64_t(expected.size()) - open;
  bool fits = open ? tensor.dim() >= dims : tensor.dim() == dims;
  int64_t d = 0;
  for (const Size& size : expected) {
    fits = fits && (size.value < 0 || tensor.size(d) == size.value);
    ++d;
  }
  if (fits) return;
  std::string names, values;
  for (const Size& size : expected) {
    names += (names.empty() ? "" : ", ") + std::string(size.name);
    values += (values.empty() ? "" : ", ") + (size.value < 0 ? size.name : std::to_string(size.value));
  }
  fail(name, ": expected shape [", names, names == values ? "]" : "] = [" + values + "]", ", got ",
       shape_name(tensor));
}

inline void check_device(const char* name, const Tensor& tensor, const char* other_name,
                         const Tensor& other) {
  if (tensor.device() != other.device()) {
    fail(name, ": expected on the same device as ", other_name, " (", device_name(other), "), got ",
         device_name(tensor));
  }
}

inline void check_contiguous(const char* name, const Tensor& tensor) {
  if (!tensor.is_contiguous()) fail(name, ": expected a contiguous tensor, which is written in place");
}

struct Extent {
  const char *begin, *end;
};

inline Extent extent(const Tensor& tensor) {
  if (tensor.numel() == 0) return {nullptr, nullptr};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * int64_t(tensor.element_size())};
}

// What is written in place, of what is read meanwhile.
inline void check_apart(const char* name, const Tensor& tensor, const char* other_name, const Tensor& other) {
  const Extent written = extent(tensor), read = extent(other);
  if (written.begin < read.end && read.begin < written.end) {
    fail(name, ": expected a tensor of its own, which is written in place, got memory of ", other_name);
  }
}

inline void check_count(const char* name, int64_t count) {
  if (count < 0) fail(name, ": expected a non-negative integer, got ", count);
}

inline void check_edge_index(const Tensor& edge_index) {
  const ScalarType type = dtype_of("edge_index", edge_index);
  if (type != ScalarType::Long && type != ScalarType::Int) {
    fail("edge_index: expected an int64 or int32 tensor, got ", dtype_name(type));
  }
  check_shape("edge_index", edge_index, {{"2", 2}, {"num_edges"}});
}

inline void check_scores(const Tensor& scores, const Tensor& edge_index) {
  check_floating("scores", scores);
  check_shape("scores", scores, {{"num_edges", edge_index.size(1)}});
  check_device("scores", scores, "edge_index", edge_index);
}

inline void check_num_nodes(std::optional<int64_t> num_nodes) {
  if (num_nodes) check_count("num_nodes", *num_nodes);
}

inline void check_cluster(const Tensor& cluster) {
  check_dtype("cluster", cluster, ScalarType::Long);
  check_shape("cluster", cluster, {{"num_nodes"}});
}

inline void check_cluster(const Tensor& cluster, const Tensor& edge_index) {
  check_cluster(cluster);
  check_device("cluster", cluster, "edge_index", edge_index);
}

// Which edges take part.
inline void check_takes_part(const Tensor& takes_part, const Tensor& edge_index) {
  check_dtype("takes_part", takes_part, ScalarType::Bool);
  check_shape("takes_part", takes_part, {{"num_edges", edge_index.size(1)}});
  check_device("takes_part", takes_part, "edge_index", edge_index);
}

inline Reduction reduction_of(const std::string& reduce) {
  if (reduce == "sum") return Reduction::kSum;
  if (reduce == "mean") return Reduction::kMean;
  if (reduce == "max") return Reduction::kMax;
  fail("reduce: expected 'sum', 'mean' or 'max', got '", reduce, "'");
}

inline void check_x_and_cluster(const Tensor& x, const Tensor& cluster) {
  check_floating("x", x);
  check_cluster(cluster);
  check_shape("x", x, {{"num_nodes", cluster.size(0)}, {"..."}});
  check_device("cluster", cluster, "x", x);
}

// A tensor with the dtype and device of x, and rows like those of x.
inline void check_rows(const char* name, const Tensor& tensor, const Tensor& x, int64_t rows) {
  check_dtype(name, tensor, x.scalar_type());
  bool fits = tensor.dim() == x.dim() && tensor.size(0) == rows;
  for (int64_t d = 1; fits && d < x.dim(); ++d) fits = tensor.size(d) == x.size(d);
  if (!fits) {
    fail(name, ": expected ", rows, " rows like those of x, ", shape_name(x), ", got ", shape_name(tensor));
  }
  check_device(name, tensor, "x", x);
}

inline void check_pairs(const Tensor& h, const Tensor& pairs) {
  check_floating("h", h);
  check_shape("h", h, {{"num_nodes"}, {"channels"}});
  check_dtype("pairs", pairs, ScalarType::Long);
  check_shape("pairs", pairs, {{"2", 2}, {"num_pairs"}});
  check_device("pairs", pairs, "h", h);
}

}  // namespace gpn
