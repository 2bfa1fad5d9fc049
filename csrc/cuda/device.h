// What the CUDA kernels take from torch: its allocator, the current device and its stream.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include "../ops/host.h"
#include "launch.cuh"
#include "out_of_memory.h"

namespace gpn::cuda {

// The weights of an MLP's hidden layers, in the type that kernels multiply them in, and their gradients.
template <class W>
class Products {
 public:
  Products(const std::vector<Tensor>& weights, const std::vector<Tensor>& grads, ScalarType) : grads_(grads) {
    const ScalarType wide = std::is_same_v<W, double> ? ScalarType::Double : ScalarType::Float;
    for (const Tensor& weight : weights) {
      weights_.push_back(weight.scalar_type() == wide ? weight : torch::stable::to(weight, wide));
    }
  }
  const W* weight(int64_t layer) const { return weights_[size_t(layer)].template const_data_ptr<W>(); }
  W* weight_gradient(int64_t layer) const { return grads_[size_t(layer)].template mutable_data_ptr<W>(); }

 private:
  std::vector<Tensor> weights_;
  const std::vector<Tensor>& grads_;
};

// Makes a tensor's device the current one, for as long as the object lives, and launches on its stream.
class Device {
 public:
  // Whether forward may keep what backward would compute anew: kernels that hold their rows do not.
  static constexpr bool kKeeps = false;

  explicit Device(const Tensor& tensor) : guard_(tensor.get_device_index()) {
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
    run.stream = static_cast<cudaStream_t>(stream);
  }
  Launcher run{nullptr};

  template <class W>
  using Products = cuda::Products<W>;

  // Freed memory is reused in stream order, so a tensor may go before the kernels that use it have run.
  static Tensor new_tensor(const Tensor& like, const std::vector<int64_t>& shape, ScalarType type) {
    return new_empty(like, shape, type);
  }

  [[noreturn]] static void throw_out_of_memory(const std::string& text) { cuda::throw_out_of_memory(text); }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
};

}  // namespace gpn::cuda
