// Argument checks shared by the kernels of all devices. A check that needs no data comes first and reads
// none. Every text names the argument, what was expected and what came; gpn_ops/_checks.py raises the same
// texts for the plain-PyTorch path.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cctype>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "core/dominance.h"

namespace gpn {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Not STD_TORCH_CHECK: that puts the place in our sources before the text.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

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

inline void check_edge_index(const Tensor& edge_index) {
  const ScalarType type = edge_index.scalar_type();
  if (type != ScalarType::Long && type != ScalarType::Int) {
    fail("edge_index: expected an int64 or int32 tensor, got ", dtype_name(type));
  }
  if (edge_index.dim() != 2 || edge_index.size(0) != 2) {
    fail("edge_index: expected shape [2, num_edges], got ", shape_name(edge_index));
  }
}

inline void check_scores(const Tensor& scores, const Tensor& edge_index) {
  const ScalarType type = scores.scalar_type();
  if (type != ScalarType::Float && type != ScalarType::Double && type != ScalarType::Half &&
      type != ScalarType::BFloat16) {
    fail("scores: expected a float32, float64, float16 or bfloat16 tensor, got ", dtype_name(type));
  }
  if (scores.dim() != 1 || scores.size(0) != edge_index.size(1)) {
    fail("scores: expected shape [num_edges] = [", edge_index.size(1), "], got ", shape_name(scores));
  }
  if (device_name(scores) != device_name(edge_index)) {
    fail("scores: expected on the same device as edge_index (", device_name(edge_index), "), got ",
         device_name(scores));
  }
}

inline void check_num_nodes(std::optional<int64_t> num_nodes) {
  if (num_nodes && *num_nodes < 0) fail("num_nodes: expected a non-negative integer, got ", *num_nodes);
}

inline Form form_of(const std::string& form) {
  if (form == "auto") return Form::kAutomatic;
  if (form == "packed") return Form::kPacked;
  if (form == "wide") return Form::kWide;
  fail("form: expected 'auto', 'packed' or 'wide', got '", form, "'");
}

// edge_index as int64 with unit stride in each row; copied only where it is not.
inline Tensor readable(const Tensor& edge_index) {
  const Tensor wide = edge_index.scalar_type() == ScalarType::Long
                          ? edge_index
                          : torch::stable::to(edge_index, ScalarType::Long);
  return wide.size(1) <= 1 || wide.stride(1) == 1 ? wide : torch::stable::contiguous(wide);
}

inline const int64_t* row_of(const Tensor& readable_edge_index) {
  return readable_edge_index.const_data_ptr<int64_t>();
}
inline const int64_t* col_of(const Tensor& readable_edge_index) {
  return row_of(readable_edge_index) + readable_edge_index.stride(0);
}

}  // namespace gpn
