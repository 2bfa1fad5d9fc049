// As much of torch's stable interface as the operators of this library use, so that their host code runs in
// the C++ tests: that of the CUDA operators on the emulated device. Memory comes from `allocate`; nothing is
// ever copied. What is missing fails to compile: add it here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "../half.h"

namespace torch {

namespace headeronly {

enum class ScalarType {
  Byte,
  Char,
  Short,
  Int,
  Long,
  UInt16,
  UInt32,
  UInt64,
  Half,
  BFloat16,
  Float,
  Double,
  ComplexHalf,
  ComplexFloat,
  ComplexDouble,
  Bool
};
inline const char* toString(ScalarType) { return "another type"; }

}  // namespace headeronly

namespace stable {

using headeronly::ScalarType;

inline int64_t size_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Bool: return 1;
    case ScalarType::Short:
    case ScalarType::UInt16:
    case ScalarType::Half:
    case ScalarType::BFloat16: return 2;
    case ScalarType::Int:
    case ScalarType::UInt32:
    case ScalarType::ComplexHalf:
    case ScalarType::Float: return 4;
    case ScalarType::ComplexDouble: return 16;
    default: return 8;
  }
}

using Memory = std::shared_ptr<void>;

// Of exactly that size, and full of garbage.
inline Memory garbage(size_t bytes) {
  const Memory memory(std::malloc(bytes), &std::free);
  std::memset(memory.get(), 0xa5, bytes);
  return memory;
}
inline std::function<Memory(size_t)> allocate = garbage;

// Contiguous, always.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::vector<int64_t> sizes, ScalarType type, bool cuda)
      : sizes_(std::move(sizes)), type_(type), cuda_(cuda) {
    memory_ = allocate(size_t(numel() * size_of(type)));
  }

  ScalarType scalar_type() const { return type_; }
  int64_t dim() const { return int64_t(sizes_.size()); }
  int64_t size(int64_t d) const { return sizes_.at(size_t(d)); }
  int64_t stride(int64_t d) const {
    int64_t stride = 1;
    for (int64_t after = d + 1; after < dim(); ++after) stride *= std::max<int64_t>(size(after), 1);
    return stride;
  }
  int64_t numel() const {
    int64_t count = 1;
    for (const int64_t size : sizes_) count *= size;
    return count;
  }
  int64_t element_size() const { return size_of(type_); }
  bool is_contiguous() const { return true; }
  bool is_cpu() const { return !cuda_; }
  bool is_cuda() const { return cuda_; }
  int32_t get_device_index() const { return cuda_ ? 0 : -1; }
  int32_t device() const { return get_device_index(); }
  bool defined() const { return memory_ != nullptr; }

  void* mutable_data_ptr() const { return memory_.get(); }
  const void* const_data_ptr() const { return memory_.get(); }
  template <class T>
  T* mutable_data_ptr() const {
    return static_cast<T*>(memory_.get());
  }
  template <class T>
  const T* const_data_ptr() const {
    return static_cast<const T*>(memory_.get());
  }

 private:
  std::vector<int64_t> sizes_;
  ScalarType type_ = ScalarType::Float;
  bool cuda_ = false;
  Memory memory_;
};

inline Tensor new_empty(const Tensor& like, std::vector<int64_t> sizes,
                        std::optional<ScalarType> type = std::nullopt) {
  return Tensor(std::move(sizes), type.value_or(like.scalar_type()), like.is_cuda());
}
inline Tensor contiguous(const Tensor& tensor) { return tensor; }
// Work of torch on the device, which reads and writes so many bytes.
inline std::function<void(int64_t, int64_t, const std::function<void()>&)> on_device =
    [](int64_t, int64_t, const std::function<void()>& work) { work(); };

template <class F>
void with_type(ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Float: return f(float());
    case ScalarType::Double: return f(double());
    case ScalarType::Half: return f(gpn::test::Half());
    case ScalarType::BFloat16: return f(gpn::test::BFloat16());
    default: throw std::logic_error("stand-in of torch: no conversion of this type");
  }
}

inline Tensor to(const Tensor& tensor, ScalarType type) {
  if (tensor.scalar_type() == type) return tensor;
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < tensor.dim(); ++d) sizes.push_back(tensor.size(d));
  const Tensor result = new_empty(tensor, sizes, type);
  on_device(tensor.numel() * tensor.element_size(), result.numel() * result.element_size(), [&] {
    with_type(tensor.scalar_type(), [&](auto from) {
      with_type(type, [&](auto into) {
        const auto* values = tensor.const_data_ptr<decltype(from)>();
        auto* converted = result.mutable_data_ptr<decltype(into)>();
        for (int64_t i = 0; i < tensor.numel(); ++i) converted[i] = decltype(into)(double(values[i]));
      });
    });
  });
  return result;
}
inline Tensor zero_(Tensor& tensor) {
  const int64_t bytes = tensor.numel() * tensor.element_size();
  on_device(0, bytes, [&] { std::memset(tensor.mutable_data_ptr(), 0, size_t(bytes)); });
  return tensor;
}

namespace accelerator {
class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t) {}
  ~DeviceGuard() {}
};
}  // namespace accelerator

// What an operator is called with.
struct None {};
using Argument = std::variant<None, Tensor, std::vector<Tensor>, ScalarType, int64_t, double,
                              std::string>;  // int64_t: bool too

template <class Parameter>
struct Unboxed {
  static Parameter of(const Argument& argument) { return Parameter(std::get<Parameter>(argument)); }
};
template <>
struct Unboxed<bool> {
  static bool of(const Argument& argument) { return std::get<int64_t>(argument) != 0; }
};
template <class Parameter>
struct Unboxed<std::optional<Parameter>> {
  static std::optional<Parameter> of(const Argument& argument) {
    if (std::holds_alternative<None>(argument)) return std::nullopt;
    return Unboxed<Parameter>::of(argument);
  }
};

inline std::vector<Tensor> boxed(Tensor result) { return {std::move(result)}; }
inline std::vector<Tensor> boxed(std::vector<Tensor> results) { return results; }
template <class... Results>
std::vector<Tensor> boxed(std::tuple<Results...> results) {
  return std::apply([](Results&... each) { return std::vector<Tensor>{std::move(each)...}; }, results);
}

// What a library registers, by device and name.
using Operator = std::function<std::vector<Tensor>(const std::vector<Argument>&)>;
inline std::map<std::string, Operator> operators;

template <class Result, class... Parameters>
Operator box(Result (*function)(Parameters...)) {
  return [=](const std::vector<Argument>& arguments) {
    if (arguments.size() != sizeof...(Parameters)) {
      throw std::logic_error("expected " + std::to_string(sizeof...(Parameters)) + " arguments, got " +
                             std::to_string(arguments.size()));
    }
    return [&]<size_t... i>(std::index_sequence<i...>) {
      if constexpr (std::is_void_v<Result>) {
        function(Unboxed<std::remove_cvref_t<Parameters>>::of(arguments[i])...);
        return std::vector<Tensor>();
      } else {
        return boxed(function(Unboxed<std::remove_cvref_t<Parameters>>::of(arguments[i])...));
      }
    }(std::index_sequence_for<Parameters...>());
  };
}

struct Library {
  std::string device;
  void impl(const std::string& name, Operator function) {
    operators[device + " " + name] = std::move(function);
  }
};
struct Registration {
  Registration(const char* device, void (*fill)(Library&)) {
    Library library{device};
    fill(library);
  }
};

}  // namespace stable
}  // namespace torch

#define TORCH_BOX(function) torch::stable::box(function)
#define STABLE_TORCH_LIBRARY_IMPL(name, device, m)                                                       \
  static void fill_##name##_##device(torch::stable::Library&);                                           \
  static const torch::stable::Registration register_##name##_##device(#device, &fill_##name##_##device); \
  static void fill_##name##_##device([[maybe_unused]] torch::stable::Library& m)

#define TORCH_ERROR_CODE_CHECK(call) \
  if ((call) != 0) throw std::runtime_error(#call)
inline int aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
  *stream = nullptr;
  return 0;
}

#define AT_WRAP(...) __VA_ARGS__
#define AT_FLOATING_TYPES
#define THO_DISPATCH_V2(type, name, body, ...)                              \
  switch (type) {                                                           \
    case torch::headeronly::ScalarType::Float: {                            \
      using scalar_t = float;                                               \
      body();                                                               \
      break;                                                                \
    }                                                                       \
    case torch::headeronly::ScalarType::Double: {                           \
      using scalar_t = double;                                              \
      body();                                                               \
      break;                                                                \
    }                                                                       \
    case torch::headeronly::ScalarType::Half: {                             \
      using scalar_t = gpn::test::Half;                                     \
      body();                                                               \
      break;                                                                \
    }                                                                       \
    case torch::headeronly::ScalarType::BFloat16: {                         \
      using scalar_t = gpn::test::BFloat16;                                 \
      body();                                                               \
      break;                                                                \
    }                                                                       \
    default: throw std::logic_error(std::string(name) + ": no such dtype"); \
  }
