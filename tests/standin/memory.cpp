#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace standin {
namespace {

constexpr size_t kTotal = size_t(8) << 30;           // what a device says it has
constexpr size_t kAddresses = size_t(1) << 40;       // more, because a block's addresses are a power of two
const size_t kPage = size_t(sysconf(_SC_PAGESIZE));  // NOLINT

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::abort();
}

struct Block {
  size_t bytes;   // asked for, rounded to kGranularity
  size_t mapped;  // addresses
};

struct Device {
  char* closed = nullptr;
  char* open = nullptr;
  int file = -1;
  size_t top = 0;  // what lies above was never handed out
  std::unordered_map<size_t, Block> blocks;
  std::map<size_t, std::vector<size_t>> free;  // by addresses taken: offsets
  Memory memory;

  void map() {
    if (closed != nullptr) return;
    file = memfd_create("standin", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(kAddresses)) != 0) die("standin: no memory");
    const auto view = [&](int protection) {
      void* address = mmap(nullptr, kAddresses, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
      if (address == MAP_FAILED) die("standin: no addresses");
      return static_cast<char*>(address);
    };
    closed = view(PROT_NONE);
    open = view(PROT_READ | PROT_WRITE);
    memory.total = memory.limit = int64_t(kTotal);
  }
};

Device devices[kDevices];
std::mutex mutex;              // of the above
std::recursive_mutex running;  // one thread at a time runs kernels
thread_local int current = 0;
thread_local int depth = 0;
bool used = false, bad_fork = false;

void after_fork() { bad_fork = bad_fork || used; }

void use() {
  if (used) return;
  used = true;
  pthread_atfork(nullptr, nullptr, after_fork);
  for (Device& device : devices) device.map();
}

void protect(int protection) {
  Device& device = devices[current];
  size_t top;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    use();
    top = device.top;
  }
  if (top > 0 && mprotect(device.closed, top, protection) != 0) die("standin: mprotect");
}

}  // namespace

void* allocate(int index, size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  use();
  Device& device = devices[index];
  bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (device.memory.current + int64_t(bytes) > device.memory.limit) return nullptr;
  const size_t mapped = std::bit_ceil(std::max(bytes, kPage));
  std::vector<size_t>& free = device.free[mapped];
  size_t offset;
  if (free.empty()) {
    if (device.top + mapped > kAddresses) return nullptr;
    offset = device.top;
    device.top += mapped;
  } else {
    offset = free.back();
    free.pop_back();
  }
  device.blocks[offset] = {bytes, mapped};
  std::memset(device.open + offset, 0xa5, bytes);
  Memory& memory = device.memory;
  memory.current += int64_t(bytes);
  memory.allocated += int64_t(bytes);
  memory.peak = std::max(memory.peak, memory.current);
  ++memory.blocks;
  return device.closed + offset;
}

void release(void* pointer) {
  if (pointer == nullptr || bad_fork) return;
  const std::lock_guard<std::mutex> lock(mutex);
  Device& device = devices[device_of(pointer)];
  const size_t offset = size_t(static_cast<char*>(pointer) - device.closed);
  const Block block = device.blocks.at(offset);
  device.blocks.erase(offset);
  // Back to the system: the pages of a long test would else stay, and every mprotect would visit them.
  if (block.mapped > 16 * kPage) {
    madvise(device.open + offset, block.mapped, MADV_REMOVE);
  } else {
    std::memset(device.open + offset, 0xa5, block.bytes);
  }
  device.free[block.mapped].push_back(offset);
  device.memory.current -= int64_t(block.bytes);
  device.memory.freed += int64_t(block.bytes);
  --device.memory.blocks;
}

Memory& memory_of(int device) {
  const std::lock_guard<std::mutex> lock(mutex);
  use();
  return devices[device].memory;
}

int device_of(const void* pointer) {
  for (int i = 0; i < kDevices; ++i) {
    const char* first = devices[i].closed;
    if (first != nullptr && pointer >= first && pointer < first + kAddresses) return i;
  }
  return -1;
}

void* open_alias(const void* pointer) {
  const int device = device_of(pointer);
  if (device < 0) return const_cast<void*>(pointer);
  return devices[device].open + (static_cast<const char*>(pointer) - devices[device].closed);
}

int current_device() { return current; }
void set_current_device(int device) { current = device; }

void enter_device() {
  running.lock();
  if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

void leave_device() {
  if (--depth == 0) protect(PROT_NONE);
  running.unlock();
}

bool in_bad_fork() { return bad_fork; }

}  // namespace standin
