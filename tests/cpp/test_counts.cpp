// What is counted of kernels whose counts are known (emulation/counts.h), by every schedule alike.
#include <cuda_runtime.h>
//
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <vector>

#include "check.h"
#include "emulation/counts.h"

namespace gpn::test {

using emulation::Counting;
using emulation::Counts;
using emulation::DeviceMemory;
using emulation::KernelCounts;

// Named for their names to be found.
template <class T>
void copy_words(const T* in, T* out, int64_t count, int64_t stride) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i * stride] = in[i * stride];
}
// Lane t takes t items.
void sum_triangle(const int* in, int* out) {
  int sum = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) sum += in[i];
  if (threadIdx.x == 31) *out = sum;
}
// Even lanes look twice, from two places of the program.
void look_again(const int* in, int* out) {
  int sum = in[threadIdx.x];
  if (threadIdx.x % 2 == 0) sum += in[32 + threadIdx.x];
  if (sum < 0) *out = sum;
}
void add_all(int* out) { atomicAdd(out + threadIdx.x % 2, 1); }
void swap_all(int* out) { atomicCAS(out, -1, 1); }
void read_all(int* in, int* out) {
  const int value = ::cuda::atomic_ref<int>(*in).load(::cuda::std::memory_order_relaxed);
  if (value > 0) *out = value;
}
// Only the last write is to memory of the device.
void keep_to_itself(const int* parameters, int* out) {
  int own[8];
  for (int i = 0; i < 8; ++i) own[i] = parameters[i] + int(threadIdx.x);
  __shared__ int shared[32];
  shared[threadIdx.x] = own[threadIdx.x % 8];
  __syncthreads();
  out[threadIdx.x] = shared[31 - threadIdx.x];
}
void write_bytes(char* out) { out[threadIdx.x] = 1; }

namespace {

// The counts of one launch, which no schedule changes.
template <class... Parameters, class... Arguments>
KernelCounts counts_of(const char* name, unsigned blocks, unsigned threads, void (*kernel)(Parameters...),
                       Arguments... arguments) {
  KernelCounts first;
  for (int policy = 0; policy < emulation::kPolicies; ++policy) {
    for (const unsigned resident : {32u, 1024u}) {
      emulation::clear();
      emulation::settings = {};
      emulation::settings.policy = emulation::Policy(policy);
      emulation::settings.resident_threads = resident;
      Counts counts;
      {
        const Counting counting(counts);
        emulation::launch(blocks, threads, [=] { kernel(static_cast<Parameters>(arguments)...); });
      }
      CHECK(emulation::record.failure.empty());
      CHECK(counts.kernels.size() == 1 && counts.kernels[0].first == name && counts.waits == 0);
      const KernelCounts& now = counts.kernels[0].second;
      CHECK(now.launches == 1);
      if (policy == 0 && resident == 32) first = now;
      CHECK(now == first);
    }
  }
  return first;
}

void test_sectors(DeviceMemory& memory) {
  int* in = static_cast<int*>(memory.allocate(1 << 16));
  int* out = static_cast<int*>(memory.allocate(1 << 16));
  const auto copy = [&](unsigned blocks, unsigned threads, int64_t count, int64_t stride, int64_t skip) {
    return counts_of("copy_words<int>", blocks, threads, copy_words<int>, in + skip, out + skip, count,
                     stride);
  };
  KernelCounts counts = copy(1, 32, 32, 1, 0);  // 32 words side by side: 128 bytes
  CHECK(counts.bytes_read == 128 && counts.bytes_written == 128);
  CHECK(counts.sectors_read == 4 && counts.sectors_written == 4);
  CHECK(counts.distinct_read == 4 && counts.distinct_written == 4);
  CHECK(counts.longest_chain == 2 && counts.longest_loop == 1);
  counts = copy(1, 32, 32, 1, 1);  // not aligned
  CHECK(counts.sectors_read == 5 && counts.sectors_written == 5 && counts.bytes_read == 128);
  counts = copy(1, 32, 32, 8, 0);  // a sector each
  CHECK(counts.sectors_read == 32 && counts.distinct_written == 32 && counts.bytes_read == 128);
  counts = copy(1, 32, 32, 0, 0);  // all the same
  CHECK(counts.sectors_read == 1 && counts.sectors_written == 1 && counts.bytes_written == 128);
  counts = copy(1, 64, 64, 0, 0);  // for each warp anew, but not for memory
  CHECK(counts.sectors_read == 2 && counts.distinct_read == 1);
  counts = copy(2, 32, 64, 0, 0);
  CHECK(counts.sectors_read == 2 && counts.distinct_read == 1);
  counts = copy(1, 33, 33, 1, 0);  // a warp of one lane
  CHECK(counts.sectors_read == 5 && counts.distinct_read == 5);
  counts = copy(3, 64, 100, 1, 0);  // blocks with nothing to do
  CHECK(counts.sectors_read == 13 && counts.bytes_written == 400);

  const double* wide = reinterpret_cast<const double*>(in);
  counts =
      counts_of("copy_words<double>", 1, 32, copy_words<double>, wide, reinterpret_cast<double*>(out), 32, 1);
  CHECK(counts.sectors_read == 8 && counts.bytes_read == 256);
  counts = counts_of("write_bytes", 1, 64, write_bytes, reinterpret_cast<char*>(out));
  CHECK(counts.sectors_written == 2 && counts.bytes_written == 64 && counts.sectors_read == 0);
}

void test_turns(DeviceMemory& memory) {
  const int* in = static_cast<const int*>(memory.allocate(1 << 12));
  int* out = static_cast<int*>(memory.allocate(8));
  // Turn i reads word i for all lanes that are still there: one sector.
  KernelCounts counts = counts_of("sum_triangle", 1, 32, sum_triangle, in, out);
  CHECK(counts.sectors_read == 31 && counts.bytes_read == 4 * 31 * 32 / 2 && counts.distinct_read == 4);
  CHECK(counts.longest_loop == 31 && counts.longest_chain == 32 && counts.sectors_written == 1);
  counts = counts_of("sum_triangle", 2, 20, sum_triangle, in, out);  // the second block begins anew
  CHECK(counts.longest_loop == 19 && counts.longest_chain == 19 && counts.sectors_read == 38);
  counts = counts_of("look_again", 1, 32, look_again, in, out);
  CHECK(counts.sectors_read == 8 && counts.bytes_read == 4 * 48 && counts.longest_loop == 1);
  CHECK(counts.longest_chain == 2 && counts.sectors_written == 0);
}

// A read-modify-write is one of each.
void test_atomics(DeviceMemory& memory) {
  int* out = static_cast<int*>(memory.allocate(8));
  for (const bool swap : {false, true}) {
    const KernelCounts counts =
        swap ? counts_of("swap_all", 1, 32, swap_all, out) : counts_of("add_all", 1, 32, add_all, out);
    CHECK(counts.bytes_read == 128 && counts.bytes_written == 128 && counts.longest_chain == 1);
    CHECK(counts.sectors_read == 1 && counts.sectors_written == 1 && counts.longest_loop == 1);
  }
  const KernelCounts counts = counts_of("read_all", 1, 32, read_all, out, out + 1);
  CHECK(counts.bytes_read == 128 && counts.sectors_read == 1 && counts.sectors_written == 1);
}

void test_own_memory(DeviceMemory& memory) {
  int* out = static_cast<int*>(memory.allocate(128));
  const std::vector<int> parameters(8, 1);
  const KernelCounts counts = counts_of("keep_to_itself", 1, 32, keep_to_itself, parameters.data(), out);
  CHECK(counts.bytes_read == 0 && counts.bytes_written == 128 && counts.longest_chain == 1);
}

void test_memory(DeviceMemory& memory) {
  memory.clear();
  char* first = static_cast<char*>(memory.allocate(1));
  char* second = static_cast<char*>(memory.allocate(513));
  CHECK(second - first == 512 && static_cast<char*>(memory.allocate(0)) - second == 1024);
  *first = 1;
  memory.clear();
  CHECK(memory.allocate(1) == first && *first == 0);
  CHECK(DeviceMemory::taken(0) == 0 && DeviceMemory::taken(1) == 512 && DeviceMemory::taken(512) == 512);
}

// Launches of one kernel are added up, each with sectors of its own; the longest of them stay.
void test_launches(DeviceMemory& memory) {
  const int* in = static_cast<const int*>(memory.allocate(256));
  int* out = static_cast<int*>(memory.allocate(256));
  Counts counts;
  {
    const Counting counting(counts);
    for (const unsigned threads : {32u, 8u}) {
      emulation::launch(1, threads, [=, kernel = &sum_triangle] { kernel(in, out); });
      emulation::launch(1, threads, [=, kernel = &copy_words<int>] { kernel(in, out, 32, 1); });
    }
  }
  CHECK(counts.kernels.size() == 2 && counts.kernels[0].first == "sum_triangle");
  KernelCounts kernel = counts.of("sum_triangle");
  CHECK(kernel.launches == 2 && kernel.longest_loop == 31 && kernel.distinct_read == 5);
  kernel = counts.of("copy_words<int>");
  CHECK(kernel.launches == 2 && kernel.distinct_read == 5 && kernel.sectors_written == 5);
  kernel = counts.total();
  CHECK(kernel.launches == 4 && kernel.longest_chain == 32 && kernel.distinct_read == 10);
}

// --------------------------------------------------------------------------------------- what is not ours

template <class F>
Counts counts_on_host(const F& f) {
  Counts counts;
  const Counting counting(counts);
  f();
  return counts;
}

void test_host() {
  char device[100] = {}, host[100];
  const Counts counts = counts_on_host([&] {
    cudaMemsetAsync(device, 0, 100, nullptr);
    cudaMemcpyAsync(host, device, 40, cudaMemcpyDeviceToHost, nullptr);
    cudaStreamSynchronize(nullptr);
    cudaMemcpyAsync(device, host, 33, cudaMemcpyHostToDevice, nullptr);
    cudaMemcpyAsync(device, host, 32, cudaMemcpyDeviceToDevice, nullptr);
    cudaStreamSynchronize(nullptr);
  });
  CHECK(counts.waits == 2 && counts.kernels.size() == 2);
  const KernelCounts& memset = counts.kernels[0].second;
  const KernelCounts& copies = counts.kernels[1].second;
  CHECK(counts.kernels[0].first == "memset" && counts.kernels[1].first == "copy");
  CHECK(memset.launches == 1 && memset.bytes_written == 100 && memset.sectors_written == 4);
  CHECK(copies.launches == 3 && copies.bytes_read == 72 && copies.bytes_written == 65);
  CHECK(counts.total().launches == 4 && counts.total().bytes_written == 165);
}

// Launches of the whole call, memsets included, and those of one kernel.
template <class Key>
std::pair<int64_t, int64_t> sorting(int64_t items, int bits) {
  std::vector<Key> in(static_cast<size_t>(items)), out(in);
  std::vector<uint32_t> values(in.size()), sorted(in.size());
  const Counts counts = counts_on_host([&] {
    size_t bytes = 0;
    cub::DeviceRadixSort::SortPairs(nullptr, bytes, in.data(), out.data(), values.data(), sorted.data(),
                                    items, 0, bits);
    std::vector<char> storage(bytes);
    cub::DeviceRadixSort::SortPairs(storage.data(), bytes, in.data(), out.data(), values.data(),
                                    sorted.data(), items, 0, bits);
  });
  Counts copy = counts;
  return {counts.total().launches, copy.of("memset").launches};
}

// Counted by hand in CUB's source.
void test_cub() {
  using Pair = std::pair<int64_t, int64_t>;
  CHECK(sorting<uint32_t>(0, 20) == Pair(0, 0));
  CHECK(sorting<uint32_t>(100, 0) == Pair(2, 0));    // copies
  CHECK(sorting<uint32_t>(4864, 20) == Pair(1, 0));  // one tile: 256 threads of 19
  // Histogram and sums with a memset each; for every 8 bits a memset and a sweep.
  CHECK(sorting<uint32_t>(4865, 8) == Pair(6, 3));
  CHECK(sorting<uint32_t>(4865, 20) == Pair(10, 5));
  CHECK(sorting<uint64_t>(2304, 20) == Pair(1, 0));  // 256 threads of 9
  CHECK(sorting<uint64_t>(2305, 41) == Pair(16, 8));

  size_t one = 0, two = 0;
  const uint64_t* keys = nullptr;
  cub::DeviceRadixSort::SortKeys(nullptr, one, keys, static_cast<uint64_t*>(nullptr), 10000, 0, 8);
  cub::DeviceRadixSort::SortKeys(nullptr, two, keys, static_cast<uint64_t*>(nullptr), 10000, 0, 9);
  CHECK(two - one == 80000);  // the second pass needs somewhere to come from

  std::vector<int> in(5000, 1), out(5000);
  int64_t selected = 0;
  size_t bytes = size_t(1) << 20;
  std::vector<char> storage(bytes), flags(5000, 1);
  Counts counts = counts_on_host(
      [&] { cub::DeviceScan::InclusiveSum(storage.data(), bytes, in.data(), out.data(), int64_t(5000)); });
  CHECK(counts.total().launches == 2 && counts.total().bytes_read >= 20000);
  CHECK(counts.total().bytes_written >= 20000);
  counts = counts_on_host([&] {
    cub::DeviceSelect::Flagged(storage.data(), bytes, in.data(), flags.data(), out.data(), &selected,
                               int64_t(5000));
  });
  CHECK(counts.total().launches == 2 && counts.total().bytes_read >= 25000);
  counts = counts_on_host(
      [&] { cub::DeviceReduce::Sum(storage.data(), bytes, in.data(), out.data(), int64_t(4096)); });
  CHECK(counts.total().launches == 1);
  counts = counts_on_host(
      [&] { cub::DeviceReduce::Sum(storage.data(), bytes, in.data(), out.data(), int64_t(4097)); });
  CHECK(counts.total().launches == 2);
}

}  // namespace
}  // namespace gpn::test

int main() {
  using namespace gpn::test;
  DeviceMemory memory;
  test_sectors(memory);
  test_turns(memory);
  test_atomics(memory);
  test_own_memory(memory);
  test_launches(memory);
  test_memory(memory);
  test_host();
  test_cub();
  return 0;
}
