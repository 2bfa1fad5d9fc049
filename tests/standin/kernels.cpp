// The project's operators on the stand-in: the host code and the kernels of the CUDA library, as they are,
// under the dispatch key PrivateUse1; the emulation runs the kernels.
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch_v2.h>

#include "memory.h"

// What a CPU build of torch lacks. Streams of the stand-in run in order and at once, so all are one.
AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
  *stream = nullptr;
  return AOTI_TORCH_SUCCESS;
}

#define CUDA PrivateUse1
#include "cuda/library.cu"
#undef CUDA

namespace {

struct Settings {
  Settings() {
    emulation::settings.most_steps = int64_t(1) << 40;  // large graphs take many
    emulation::OnDevice::enter = standin::enter_device;
    emulation::OnDevice::leave = standin::leave_device;
  }
} settings;

}  // namespace
