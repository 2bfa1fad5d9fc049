// Launching: one thread an item, grid-stride beyond kMaxBlocks, the stream an explicit parameter, a check
// after every launch. The C++ tests compile this directory with the host compiler; there `emulation::launch`
// runs the same kernels on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "../core/platform.h"

namespace gpn::cuda {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;  // in a block
constexpr int64_t kMaxBlocks = int64_t(1) << 16;

struct Launcher {
  cudaStream_t stream;
  int block_size = 256;  // a multiple of kWarp, at most kMostThreads
  int64_t max_blocks = kMaxBlocks;
  int piece_bits = 8;  // a thread folds at most 2^piece_bits terms of a run; see reduce.cuh

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t items, Arguments... arguments) const {
    if (items == 0) return;
    const int64_t wanted = (items + block_size - 1) / block_size;
    const unsigned blocks = unsigned(wanted < max_blocks ? wanted : max_blocks);
#if defined(__CUDACC__)
    kernel<<<blocks, unsigned(block_size), 0, stream>>>(static_cast<Parameters>(arguments)...);
#else
    emulation::launch(blocks, unsigned(block_size), [=] { kernel(static_cast<Parameters>(arguments)...); });
#endif
    check(cudaGetLastError());
  }

  // Waits for the device.
  template <class T>
  void read(const T* on_device, T* on_host, int64_t count) const {
    check(cudaMemcpyAsync(on_host, on_device, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
  }

  static void check(cudaError_t error) {
    if (error != cudaSuccess)
      throw std::runtime_error(std::string("gpn: CUDA error: ") + cudaGetErrorString(error));
  }
};

// Position and stride of the calling thread in a grid-stride loop.
__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return int64_t(gridDim.x) * blockDim.x; }

// Whether an id may be used as an index.
__device__ inline bool fits(int64_t id, int64_t num_nodes) { return uint64_t(id) < uint64_t(num_nodes); }

// A device-side assertion. Not assert(): this has to survive NDEBUG.
__device__ inline void assert_fits(bool all_fit) {
  if (!all_fit)
    __assert_fail("edge_index: node ids from 0 to num_nodes - 1", __FILE__, __LINE__, "gpn::cuda");
}

// Both: false, after the assertion, for an id that must not be used.
__device__ inline bool in_range(int64_t id, int64_t num_nodes) {
  assert_fits(fits(id, num_nodes));
  return fits(id, num_nodes);
}

// Registers: 32.
template <class T>
__global__ void fill(T* out, int64_t count, T value) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) out[i] = value;
}

}  // namespace gpn::cuda
