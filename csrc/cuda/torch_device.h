// What the CUDA kernels take from torch: its allocator, the current device and its stream.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include <limits>
#include <vector>

#include "../pooling_checks.h"
#include "launch.cuh"

namespace gpn::cuda {

inline Tensor empty_like_on(const Tensor& tensor, int64_t size, ScalarType type) {
  return torch::stable::new_empty(tensor, {size}, type);
}

// Device memory from torch's allocator. Freed blocks are reused in stream order, so it may go before the
// kernels have run.
class Scratch {
 public:
  explicit Scratch(const Tensor& like) : like_(like) {}
  void* operator()(int64_t bytes) const {
    held_.push_back(empty_like_on(like_, bytes, ScalarType::Byte));
    return held_.back().mutable_data_ptr();
  }

 private:
  const Tensor& like_;
  mutable std::vector<Tensor> held_;
};

// Makes a tensor's device the current one, for as long as the object lives, and launches on its stream.
class OnDevice {
 public:
  explicit OnDevice(const Tensor& tensor) : guard_(tensor.get_device_index()) {
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
    launch.stream = static_cast<cudaStream_t>(stream);
  }
  Launcher launch{nullptr};

 private:
  torch::stable::accelerator::DeviceGuard guard_;
};

// Runs f with the narrowest unsigned integer that numbers `count` things, and one more.
template <class F>
void with_index(int64_t count, const F& f) {
  if (count < std::numeric_limits<uint32_t>::max()) {
    f(uint32_t());
  } else {
    f(uint64_t());
  }
}

}  // namespace gpn::cuda
