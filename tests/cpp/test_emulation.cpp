// The emulation layer itself: what it computes, which schedules it explores, and that it notices misuse.
#include <cuda_runtime.h>
//
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <map>
#include <set>

#include "check.h"
#include "cuda/scan.cuh"
#include "device.h"
#include "seeds.h"

namespace gpn::test {
namespace {

using cuda::kWarp;
using cuda::Launcher;
using cuda::thread_count;
using cuda::thread_index;
using emulation::Policy;
using emulation::record;
using emulation::settings;

template <class... Parameters, class... Arguments>
std::string failure_of(void (*kernel)(Parameters...), unsigned threads, Arguments... arguments) {
  emulation::launch(1, threads, [=] { kernel(Parameters(arguments)...); });
  const std::string failure = record.failure;
  emulation::clear();
  return failure;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// ------------------------------------------------------------------------------------------------- results

__global__ void count_visits(int* visits, int64_t items) {
  for (int64_t i = thread_index(); i < items; i += thread_count()) atomicAdd(visits + i, 1);
}

void test_every_item_once(emulation::Random& random) {
  const int64_t items = 1 + random.below(3000);
  const Launcher launch{nullptr, int(32 * (1 + random.below(32))), 1 + random.below(6)};
  std::vector<int> visits(static_cast<size_t>(items), 0);
  launch(count_visits, items, visits.data(), items);
  CHECK(std::count(visits.begin(), visits.end(), 1) == items);
  CHECK(record.threads == unsigned(launch.block_size));
  CHECK(record.blocks ==
        std::min<int64_t>((items + launch.block_size - 1) / launch.block_size, launch.max_blocks));
}

// Inclusive sums of each block's part. The text that the planted bugs of tests/cpp/mutants.py change.
__global__ void scan_blocks(const int64_t* in, int64_t count, int64_t* out) {
  __shared__ int64_t sums[1024];
  const int64_t i = thread_index();
  sums[threadIdx.x] = i < count ? in[i] : 0;
  __syncthreads();
  for (unsigned offset = 1; offset < blockDim.x; offset *= 2) {
    const int64_t before = threadIdx.x >= offset ? sums[threadIdx.x - offset] : 0;
    __syncthreads();  // everyone has read
    sums[threadIdx.x] += before;
    __syncthreads();  // everyone has written
  }
  if (i < count) out[i] = sums[threadIdx.x];
}

void test_barriers_and_shared_memory(emulation::Random& random) {
  const int64_t count = 1 + random.below(700);
  const Launcher launch{nullptr, random.of<int>({32, 64, 96, 256})};
  std::vector<int64_t> in, out(static_cast<size_t>(count), -7), expected;
  for (int64_t i = 0; i < count; ++i) {
    in.push_back(random.below(100));
    expected.push_back(in.back() + (i % launch.block_size ? expected.back() : 0));
  }
  launch(scan_blocks, count, in.data(), count, out.data());
  CHECK(out == expected);
}

__global__ void use_warp(const int* in, std::map<std::string, int>* out) {
  const unsigned all = 0xffffffffu;
  const int own = in[threadIdx.x];
  std::map<std::string, int>& mine = out[threadIdx.x];
  mine["broadcast"] = __shfl_sync(all, own, 5);
  mine["in groups"] = __shfl_sync(all, own, 9, 8);
  mine["down"] = __shfl_down_sync(all, own, 3);
  mine["down in groups"] = __shfl_down_sync(all, own, 3, 8);
  mine["up"] = __shfl_up_sync(all, own, 3);
  mine["xor"] = __shfl_xor_sync(all, own, 16);
  mine["ballot"] = int(__ballot_sync(all, own % 2));
  mine["any"] = __any_sync(all, own == in[3]);
  mine["all"] = __all_sync(all, own < 4);
  mine["match"] = int(__match_any_sync(all, own));
  const unsigned even = 0x55555555u;
  if (threadIdx.x % 2 == 0) mine["some lanes"] = __shfl_down_sync(even, own, 2);
  __syncwarp();
}

void test_warp_intrinsics(emulation::Random& random) {
  std::vector<int> in;
  for (int i = 0; i < 64; ++i) in.push_back(int(random.below(4)));
  std::vector<std::map<std::string, int>> out(64);
  const Launcher launch{nullptr, 64};
  launch(use_warp, 64, in.data(), out.data());
  for (int t = 0; t < 64; ++t) {
    const int* warp = in.data() + t / 32 * 32;
    const int lane = t % 32;
    unsigned odd = 0, match = 0;
    for (int k = 0; k < 32; ++k) {
      odd |= unsigned(warp[k] % 2) << k;
      match |= unsigned(warp[k] == warp[lane]) << k;
    }
    std::map<std::string, int>& mine = out[size_t(t)];
    CHECK(mine["broadcast"] == warp[5]);
    CHECK(mine["in groups"] == warp[lane / 8 * 8 + 1]);
    CHECK(mine["down"] == warp[lane + 3 < 32 ? lane + 3 : lane]);
    CHECK(mine["down in groups"] == warp[lane % 8 + 3 < 8 ? lane + 3 : lane]);
    CHECK(mine["up"] == warp[lane >= 3 ? lane - 3 : lane]);
    CHECK(mine["xor"] == warp[lane ^ 16]);
    CHECK(unsigned(mine["ballot"]) == odd);
    CHECK(mine["any"] == (std::count(warp, warp + 32, in[3]) > 0));
    CHECK(mine["all"] == 1);
    CHECK(unsigned(mine["match"]) == match);
    if (t % 2 == 0) CHECK(mine["some lanes"] == warp[lane + 2 < 32 ? lane + 2 : lane]);
  }
}

__global__ void use_atomics(int* sum, float* float_sum, unsigned long long* most, int* least, unsigned* bits,
                            int* last) {
  const int own = int(thread_index());
  atomicAdd(sum, own);
  atomicAdd(float_sum, 1);
  atomicMax(most, 1000u + unsigned(own));
  atomicMin(least, -own);
  atomicOr(bits, 1u << own % 32);
  atomicExch(last, own);
}

void test_atomics() {
  int sum = 0, least = 0, last = -1;
  float float_sum = 0;
  unsigned long long most = 0;
  unsigned bits = 0;
  const Launcher launch{nullptr, 64};
  launch(use_atomics, 128, &sum, &float_sum, &most, &least, &bits, &last);
  CHECK(sum == 127 * 128 / 2 && float_sum == 128 && most == 1127 && least == -127 && bits == 0xffffffffu);
  CHECK(last >= 0 && last < 128);
}

// ----------------------------------------------------------------------------------------------- schedules

// Loses an update whenever another thread runs between its load and its store. Writes down who came when.
__global__ void add_without_atomic(int64_t* sum, unsigned* order, unsigned* next) {
  order[atomicAdd(next, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t seen = atomicAdd(sum, 0);
  atomicExch(sum, seen + 1);
}

struct Outcome {
  int64_t sum = 0;
  std::vector<unsigned> order;
  bool operator<(const Outcome& other) const {
    return std::tie(sum, order) < std::tie(other.sum, other.order);
  }
  bool operator==(const Outcome& other) const { return sum == other.sum && order == other.order; }
};

Outcome add_under(Policy policy, uint64_t seed) {
  emulation::clear();
  settings.policy = policy;
  settings.seed = seed;
  settings.resident_threads = 64;
  Outcome outcome;
  const Launcher launch{nullptr, 32};
  unsigned next = 0;
  outcome.order.resize(96);
  launch(add_without_atomic, 96, &outcome.sum, outcome.order.data(), &next);
  return outcome;
}

void test_schedules() {
  CHECK(add_under(Policy::kSequential, 0).sum == 96);
  CHECK(add_under(Policy::kRoundRobin, 0).sum < 96);
  for (const Policy policy : {Policy::kRandom, Policy::kPriority}) {
    std::set<Outcome> seen;
    bool lost = false;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Outcome outcome = add_under(policy, seed);
      CHECK(outcome == add_under(policy, seed));  // a seed replays
      lost = lost || outcome.sum < 96;
      seen.insert(outcome);
    }
    CHECK(seen.size() > 40);
    CHECK(lost);
  }
  // Blocks start in any order, and run side by side.
  bool later_first = false, mixed = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<unsigned> order = add_under(Policy::kRandom, seed).order;
    later_first = later_first || order[0] / 32 != 0;
    mixed =
        mixed || std::set<unsigned>{order[0] / 32, order[1] / 32, order[2] / 32, order[3] / 32}.size() > 1;
  }
  CHECK(later_first && mixed);
}

// -------------------------------------------------------------------------------------------------- misuse

__global__ void return_before_barrier() {
  if (threadIdx.x == 7) return;
  __syncthreads();
}
__global__ void different_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void return_before_shuffle() {
  if (threadIdx.x == 7) return;
  __shfl_down_sync(0xffffffffu, 1, 1);
}
__global__ void leave_out_self() { __ballot_sync(0xfffffffeu, 1); }
__global__ void different_masks() { __ballot_sync(threadIdx.x == 3 ? 0xffffu : 0xffffffffu, 1); }
__global__ void barrier_and_shuffle() {
  if (threadIdx.x % 2) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}
__global__ void wait_forever(int* flag) {
  while (atomicAdd(flag, 0) == 0) continue;
}

void test_misuse() {
  CHECK(has(failure_of(return_before_barrier, 64), "waits at a barrier at"));
  CHECK(has(failure_of(different_barriers, 64), "threads of a block wait at different barriers"));
  CHECK(has(failure_of(return_before_shuffle, 32), "waits for its warp at"));
  CHECK(has(failure_of(leave_out_self, 32), "leaves out the calling lane"));
  CHECK(has(failure_of(different_masks, 32), "different masks"));
  CHECK(has(failure_of(barrier_and_shuffle, 32), "threads wait for others that never come"));
  CHECK(has(failure_of(barrier_and_shuffle, 32), "seed"));
  const int64_t steps = settings.most_steps;
  settings.most_steps = 1000;
  int flag = 0;
  CHECK(has(failure_of(wait_forever, 32, &flag), "no end after 1001 steps"));
  settings.most_steps = steps;
  int visits[40] = {};
  CHECK(failure_of(count_visits, 32, &visits[0], 40).empty());  // the machine works again
  CHECK(std::count(visits, visits + 40, 1) == 40);
}

void test_launch_errors() {
  for (const auto& [blocks, threads] : {std::pair{0u, 32u}, {1u, 0u}, {1u, 1025u}}) {
    emulation::launch(blocks, threads, [] {});
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK(has(cudaGetErrorString(cudaGetLastError()), "no launch has"));
    emulation::clear();
  }
  bool thrown = false;
  try {
    Launcher{nullptr, 2048}(count_visits, 1, nullptr, 0);
  } catch (const std::runtime_error& error) {
    thrown = has(error.what(), "gpn: CUDA error: emulation: no launch has 1 blocks of 2048 threads");
  }
  CHECK(thrown);
  emulation::clear();
}

__global__ void assert_and_go_on(int* after) {
  if (!cuda::in_range(int64_t(threadIdx.x), 30)) atomicAdd(after, 1);
}

void test_assertions() {
  int after = 0;
  Launcher{nullptr, 32}(assert_and_go_on, 32, &after);
  CHECK(after == 2 && record.assertions.size() == 2);
  CHECK(has(record.assertions[0], "launch.cuh") &&
        has(record.assertions[0], "node ids from 0 to num_nodes - 1"));
  emulation::clear();
}

// --------------------------------------------------------------------------------------------- CUB stand-ins

template <class Call>
void run_cub(const Call& call) {
  size_t bytes = 0;
  CHECK(call(nullptr, bytes) == cudaSuccess && bytes > 0);
  std::vector<char> storage(bytes);
  CHECK(call(storage.data(), bytes) == cudaSuccess);
  size_t too_few = bytes - 1;
  CHECK(call(storage.data(), too_few) == cudaErrorInvalidValue);
}

void test_cub() {
  const std::vector<int> in = {3, 3, 1, 1, 1, 2};
  const int64_t count = 6;
  std::vector<int> out(6), values(6);
  int selected = 0;
  run_cub(
      [&](void* s, size_t& b) { return cub::DeviceScan::InclusiveSum(s, b, in.data(), out.data(), count); });
  CHECK((out == std::vector<int>{3, 6, 7, 8, 9, 11}));
  out = in;
  cub::DeviceScan::ExclusiveSum(nullptr, *std::make_unique<size_t>(), out.data(), out.data(), count);
  CHECK(out == in);  // a question changes nothing
  std::vector<char> storage(4096);
  size_t bytes = storage.size();
  cub::DeviceScan::ExclusiveSum(storage.data(), bytes, out.data(), out.data(), count);
  CHECK((out == std::vector<int>{0, 3, 6, 7, 8, 9}));
  const std::vector<int> ids = {0, 1, 2, 3, 4, 5};
  run_cub([&](void* s, size_t& b) {
    return cub::DeviceRadixSort::SortPairs(s, b, in.data(), out.data(), ids.data(), values.data(), count);
  });
  CHECK((out == std::vector<int>{1, 1, 1, 2, 3, 3}) && (values == std::vector<int>{2, 3, 4, 5, 0, 1}));
  run_cub([&](void* s, size_t& b) {
    return cub::DeviceRadixSort::SortKeys(s, b, in.data(), out.data(), count, 1, 2);
  });
  CHECK((out == std::vector<int>{1, 1, 1, 3, 3, 2}));  // by the second bit alone, in order otherwise
  run_cub([&](void* s, size_t& b) {
    return cub::DeviceSelect::Flagged(s, b, ids.data(), in.data() + 0, out.data(), &selected, count);
  });
  CHECK(selected == 6);
  run_cub([&](void* s, size_t& b) {
    return cub::DeviceSelect::If(s, b, in.data(), out.data(), &selected, count, [](int x) { return x < 3; });
  });
  CHECK(selected == 4 && out[3] == 2);
  run_cub([&](void* s, size_t& b) {
    return cub::DeviceSelect::Unique(s, b, in.data(), out.data(), &selected, count);
  });
  CHECK(selected == 3 && out[0] == 3 && out[1] == 1 && out[2] == 2);
  run_cub([&](void* s, size_t& b) {
    return cub::DeviceRunLengthEncode::Encode(s, b, in.data(), out.data(), values.data(), &selected, count);
  });
  CHECK(selected == 3 && values[0] == 2 && values[1] == 3 && values[2] == 1);
  run_cub([&](void* s, size_t& b) { return cub::DeviceReduce::Sum(s, b, in.data(), &selected, count); });
  CHECK(selected == 11);
  run_cub([&](void* s, size_t& b) { return cub::DeviceReduce::Max(s, b, in.data(), &selected, count); });
  CHECK(selected == 3);
}

// Terms computed where they are read, and sums used where they would be written: `spread` places away.
struct Squares {
  const int* values;
  // Unsigned, since a misused scan squares its own sums.
  int operator()(int64_t i) const { return int(unsigned(values[i]) * unsigned(values[i])); }
};
struct StoreFrom {
  int* values;
  int64_t count, spread;
  void operator()(int64_t i, int sum) const { values[(i + spread) % count] = sum; }
};

// A tile reads before it writes, so its sums may go anywhere in it; a term of another tile must not change.
void test_scans(emulation::Random& random) {
  const int64_t count = 1 + random.below(6000);
  const bool one_tile = count <= 128 * 15;
#if defined(__SANITIZE_THREAD__)
  const int64_t misuse = 0;  // which it would report
#else
  const int64_t misuse = count / 2;
#endif
  const int64_t spread = one_tile ? random.below(count) : random.of<int64_t>({0, 0, misuse});
  const Scratch memory(random());
  const cuda::Launcher launch{nullptr};
  int* values = memory.array<int>(count);
  std::vector<int> expected(static_cast<size_t>(count));
  int sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = int(random.below(9));
    sum += values[i] * values[i];
    expected[size_t((i + spread) % count)] = sum;
  }
  bool failed = false;
  try {
    cuda::scan<int>(launch, count, Squares{values}, StoreFrom{values, count, spread}, memory);
  } catch (const std::exception& error) {
    failed = true;
  }
  failed = failed || has(record.failure, "a term changed during a scan");
  if (one_tile || spread == 0) {
    CHECK(!failed && to_host(values, count) == expected);
  } else if (emulation::settings.policy == emulation::Policy::kSequential) {
    CHECK(failed);
  }
  emulation::clear();
}

}  // namespace
}  // namespace gpn::test

int main(int argc, char** argv) {
  using namespace gpn::test;
  const int failed = for_seeds(argc, argv, 60, [](emulation::Random& random, uint64_t seed) {
    test_every_item_once(random);
    test_barriers_and_shared_memory(random);
    test_warp_intrinsics(random);
    test_atomics();
    if (seed < 8) test_misuse();
    test_assertions();
    test_scans(random);
  });
  if (failed) return failed;
  test_schedules();
  test_launch_errors();
  test_cub();
}
