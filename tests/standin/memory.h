// The memory of the stand-in's devices: host memory that only code of the device can reach.
//
// A device's memory is mapped twice. Tensors carry addresses of the first mapping, which is closed
// (PROT_NONE): host code that follows such a pointer dies of SIGSEGV, as it would with a GPU. Copies go
// through the second mapping. Kernels get the tensors' own pointers, so the first mapping of the current
// device, and of no other, is open while a kernel of ours runs (OnDevice): a kernel that runs under the wrong
// device guard dies as well. New memory is filled with 0xa5, so nothing may rely on zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace standin {

constexpr int kDevices = 2;

// What CUDA's allocator rounds a size to, and counts.
constexpr size_t kGranularity = 512;

struct Memory {
  int64_t current = 0, peak = 0;  // bytes
  int64_t allocated = 0, freed = 0;
  int64_t blocks = 0;
  int64_t limit = 0, total = 0;
};

// nullptr where the limit forbids it.
void* allocate(int device, size_t bytes);
void release(void* pointer);
Memory& memory_of(int device);
// The device whose memory an address lies in, or -1.
int device_of(const void* pointer);
// The address in the mapping that is always open.
void* open_alias(const void* pointer);

int current_device();
void set_current_device(int device);

// Code of the current device runs between the two. `enter` waits for other threads.
void enter_device();
void leave_device();

// As CUDA: a process that was forked from one that has used the device may not use it.
bool in_bad_fork();

}  // namespace standin
