// Runs CUDA kernels on the CPU: every CUDA thread is a fiber, and a seeded scheduler decides which one runs
// next. The kernels are compiled unchanged by the host compiler, with this directory first on the include
// path, so that <cuda_runtime.h>, <cuda/atomic> and <cub/...> are the ones found here. Include
// <cuda_runtime.h> before any kernel. This header alone serves host code: launch() with one block runs
// threads of the CPU as fibers too.
//
// A fiber can lose its turn at an atomic, a barrier, a warp intrinsic, and where the code calls
// schedule_point(). Blocks of a launch run side by side. A thread that never comes to a barrier or shuffle
// that others wait at makes the launch fail; nothing hangs. AddressSanitizer sees accesses outside of heap
// buffers, ThreadSanitizer plain accesses of two CUDA threads that no barrier, atomic or kernel boundary
// orders, because each fiber is a thread to it.
//
// With Memory::kRelaxed an atomic load may return an older value, wherever the memory model allows it
// (memory.h).
//
// Limits: one host thread; one-dimensional blocks and grids; `__shared__` static only, and from the first
// such declaration on the blocks of a launch run one after another; dynamic shared memory, textures and
// cooperative groups are missing.
#pragma once

#if defined(GPN_SCHEDULE_POINT)
#error "include emulation.h or cuda_runtime.h before what it is to run"
#endif
#define GPN_SCHEDULE_POINT() ::emulation::schedule_point()

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

namespace emulation {

enum class Policy {
  kSequential,  // a thread runs until it has to wait
  kRoundRobin,  // every thread in turn, one step each
  kRandom,      // any thread, at every step
  kPriority,    // the thread of highest random priority; now and then the running one falls to the lowest
                // (after PCT, Burckhardt et al.)
};
constexpr int kPolicies = 4;
const char* name_of(Policy policy);

enum class Memory {
  kNewest,   // a load returns the newest value: sequentially consistent
  kRelaxed,  // any value that the memory model allows
};

// What decides a schedule: the same settings give the same one.
struct Settings {
  Policy policy = Policy::kSequential;
  uint64_t seed = 0;
  Memory memory = Memory::kNewest;
  unsigned resident_threads = 1024;  // of blocks that run side by side; at least one block does
  int64_t most_steps = 5'000'000;    // of one launch; more means that threads wait for each other forever
};
inline Settings settings;

// What the last launch was, and what has happened since clear().
struct Record {
  unsigned blocks = 0;
  unsigned threads = 0;  // of a block
  int64_t launches = 0;
  std::vector<std::string> assertions;  // texts of the device-side assertions that failed
  std::string failure;                  // misuse that made a launch fail: what cudaGetErrorString() gives
};
inline Record record;
inline void clear() { record = {}; }

// Where launches are told to, if anywhere: see counts.h.
class Observer {
 public:
  virtual ~Observer() = default;
  // `body` is what launch() was given: with the kernel's address somewhere in it. Threads go by their slot,
  // below `slots`: see slot_of_thread().
  virtual void launch_starts(const void* body, size_t bytes, size_t slots) = 0;
  virtual void block_ends(const std::vector<size_t>& slots) = 0;  // of its threads, in order
  virtual void launch_ends() = 0;
  // What is not a kernel of ours: memset, copies, CUB's own kernels.
  virtual void launched(const char* name, int64_t launches, int64_t bytes_read, int64_t bytes_written) = 0;
  virtual void waited() = 0;  // the host for the device
};
inline Observer* observer = nullptr;

void launch_body(unsigned blocks, unsigned threads, const std::function<void()>& call, const void* body,
                 size_t bytes);

// Runs body() once for every thread of the grid. Like a launch of CUDA, it returns nothing: see
// cudaGetLastError().
template <class Body>
void launch(unsigned blocks, unsigned threads, const Body& body) {
  launch_body(blocks, threads, std::ref(body), &body, sizeof(body));
}

// Lives while code of the device runs: a kernel, a copy, an algorithm of CUB. For whoever keeps the device's
// memory closed at other times.
struct OnDevice {
  static inline void (*enter)() = nullptr;
  static inline void (*leave)() = nullptr;
  OnDevice() {
    if (enter != nullptr) enter();
  }
  ~OnDevice() {
    if (leave != nullptr) leave();
  }
};

// Whether the caller is inside a kernel.
bool in_kernel();

// Lets another thread run. Does nothing outside of kernels.
void schedule_point();

// The memory orders of atomics.
enum class Order { kRelaxed, kAcquire, kRelease, kAcquireRelease, kSequential };

// Whether the following three have to be asked: the caller is inside a kernel and memory is relaxed.
bool asks_memory();
// What a load returns where memory holds `newest`. A compare-and-swap that fails takes the newest.
uint64_t loaded(const void* word, uint64_t newest, Order order, bool take_newest = false);
// What memory holds after a store.
uint64_t stored(const void* word, uint64_t newest, uint64_t value, Order order);
// A read-modify-write has replaced one value by another.
void changed(const void* word, uint64_t before, uint64_t after, Order order);

// The following are called through the names of CUDA (see cuda_runtime.h).
using Place = std::source_location;

void sync_block(Place place);
void sync_warp(unsigned mask, Place place);
// The values of all lanes in `mask`, by lane; those of other lanes are garbage. Valid until the caller's next
// exchange.
const uint64_t* exchange(unsigned mask, uint64_t value, Place place);
unsigned thread_of_block();
size_t slot_of_thread();
void enter_shared();
void fence();
void assertion_failed(const char* text, const char* file, unsigned line, const char* function);

// A generator of which seeds that differ by one give unrelated numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t operator()() {  // splitmix64
    uint64_t bits = state_ += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
  }
  // From 0 to bound - 1.
  int64_t below(int64_t bound) { return int64_t((*this)() % uint64_t(bound)); }
  template <class T>
  const T& of(const std::vector<T>& choices) {
    return choices[below(int64_t(choices.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace emulation
