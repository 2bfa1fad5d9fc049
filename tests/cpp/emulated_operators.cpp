// The operators for CUDA tensors, host side included, on the emulated device.
#include <cuda_runtime.h>
//
#include "cuda/library.cu"
