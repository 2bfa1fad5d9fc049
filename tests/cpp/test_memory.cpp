// The emulation's relaxed memory: small programs of two to four threads whose outcomes the memory model
// allows or forbids. What is allowed has to turn up over many seeds, what is forbidden never. Then the
// algorithms of the CPU on that memory, with their threads as fibers.
#include <cuda_runtime.h>
//
#include <set>

#include "check.h"
#include "fibers.h"
#include "seeds.h"

namespace gpn::test {
namespace {

using ::cuda::std::memory_order;
using ::cuda::std::memory_order_acquire;
using ::cuda::std::memory_order_relaxed;
using ::cuda::std::memory_order_release;
using ::cuda::std::memory_order_seq_cst;
using emulation::Memory;
using emulation::Policy;
using emulation::settings;

int load(int& word, memory_order order = memory_order_relaxed) {
  return ::cuda::atomic_ref<int>(word).load(order);
}
void store(int& word, int value, memory_order order = memory_order_relaxed) {
  ::cuda::atomic_ref<int>(word).store(value, order);
}
int add(int& word, int value, memory_order order = memory_order_relaxed) {
  return ::cuda::atomic_ref<int>(word).fetch_add(value, order);
}

using Outcomes = std::set<std::vector<int>>;

// What x, y and seen (all 0 before) are afterwards, over many seeds and all policies. A program is one
// thread's text: program(thread, x, y, seen). One thread a block, unless they share one.
struct Words {
  int x = 0, y = 0;
  int seen[4] = {};
};
template <class Program>
Outcomes outcomes(unsigned threads, const Program& program, Memory memory = Memory::kRelaxed,
                  bool one_block = false) {
  Outcomes all;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    emulation::clear();
    settings = {};
    settings.policy = Policy(seed % emulation::kPolicies);
    settings.seed = seed;
    settings.memory = memory;
    Words words;
    emulation::launch(one_block ? 1 : threads, one_block ? threads : 1,
                      [&] { program(one_block ? threadIdx.x : blockIdx.x, words); });
    CHECK(emulation::record.failure.empty());
    std::vector<int> outcome(words.seen, words.seen + 4);
    outcome.insert(outcome.end(), {words.x, words.y});
    all.insert(outcome);
  }
  return all;
}

bool any(const Outcomes& outcomes, const auto& condition) {
  return std::any_of(outcomes.begin(), outcomes.end(), condition);
}

// Each writes one word and reads the other's: nobody may see the other.
void test_store_buffering() {
  const auto neither = [](const std::vector<int>& o) { return o[0] == 0 && o[1] == 0; };
  const auto program = [](memory_order order, bool fence) {
    return [=](unsigned t, Words& w) {
      store(t ? w.y : w.x, 1, order);
      if (fence) __threadfence();
      w.seen[t] = load(t ? w.x : w.y, order);
    };
  };
  CHECK(any(outcomes(2, program(memory_order_relaxed, false)), neither));
  CHECK(!any(outcomes(2, program(memory_order_relaxed, false), Memory::kNewest), neither));
  CHECK(!any(outcomes(2, program(memory_order_relaxed, true)), neither));
  CHECK(!any(outcomes(2, program(memory_order_seq_cst, false)), neither));
}

// A flag is seen before what was written ahead of it, unless something orders the two.
void test_message_passing() {
  const auto early = [](const std::vector<int>& o) { return o[0] == 1 && o[1] == 0; };
  const auto program = [](memory_order out, memory_order in, bool fence_out, bool fence_in) {
    return [=](unsigned t, Words& w) {
      if (t == 0) {
        store(w.x, 1);
        if (fence_out) __threadfence();
        store(w.y, 1, out);
      } else {
        w.seen[0] = load(w.y, in);
        if (fence_in) __threadfence();
        w.seen[1] = load(w.x);
      }
    };
  };
  const memory_order plain = memory_order_relaxed;
  CHECK(any(outcomes(2, program(plain, plain, false, false)), early));
  CHECK(any(outcomes(2, program(plain, plain, true, false)), early));  // one side is not enough
  CHECK(any(outcomes(2, program(plain, plain, false, true)), early));
  CHECK(any(outcomes(2, program(memory_order_release, plain, false, false)), early));
  CHECK(any(outcomes(2, program(plain, memory_order_acquire, false, false)), early));
  CHECK(!any(outcomes(2, program(plain, plain, true, true)), early));
  CHECK(!any(outcomes(2, program(memory_order_release, memory_order_acquire, false, false)), early));
  CHECK(!any(outcomes(2, program(memory_order_release, plain, false, true)), early));
  CHECK(!any(outcomes(2, program(plain, plain, false, false), Memory::kNewest), early));
  CHECK(any(outcomes(2, program(memory_order_release, memory_order_acquire, false, false)),
            [](const std::vector<int>& o) { return o[0] == 0 && o[1] == 0; }));
}

// What a read-modify-write read stays published through it.
void test_release_sequence() {
  const auto early = [](const std::vector<int>& o) { return o[0] == 2 && o[1] == 0; };
  const auto program = [](bool through_store) {
    return [=](unsigned t, Words& w) {
      if (t == 0) {
        store(w.x, 1);
        store(w.y, 1, memory_order_release);
      } else if (t == 1) {
        if (load(w.y) == 1) through_store ? store(w.y, 2) : void(add(w.y, 1));
      } else {
        w.seen[0] = load(w.y, memory_order_acquire);
        w.seen[1] = load(w.x);
      }
    };
  };
  CHECK(!any(outcomes(3, program(false)), early));
  CHECK(any(outcomes(3, program(true)), early));
  // And one that acquires learns what the newest value published.
  CHECK(!any(outcomes(2,
                      [](unsigned t, Words& w) {
                        if (t == 0) {
                          store(w.x, 1);
                          store(w.y, 2, memory_order_release);
                        } else {
                          w.seen[0] = add(w.y, 0, memory_order_acquire);
                          w.seen[1] = load(w.x);
                        }
                      }),
             early));
}

// One word alone: a thread never goes back to an older value, and knows its own.
void test_coherence() {
  CHECK(!any(outcomes(3,
                      [](unsigned t, Words& w) {
                        if (t == 0) {
                          store(w.x, 1);
                          store(w.x, 2);
                        } else {
                          for (int i = 0; i < 2; ++i) w.seen[2 * (t - 1) + unsigned(i)] = load(w.x);
                        }
                      }),
             [](const std::vector<int>& o) { return o[0] > o[1] || o[2] > o[3] || o[4] != 2; }));
  CHECK(!any(outcomes(2,
                      [](unsigned t, Words& w) {
                        store(w.x, int(t) + 1);
                        w.seen[t] = load(w.x);
                      }),
             [](const std::vector<int>& o) { return o[0] == 0 || o[1] == 0; }));
  // Two readers do not see two writes in two orders.
  CHECK(!any(
      outcomes(4,
               [](unsigned t, Words& w) {
                 if (t < 2) return store(w.x, int(t) + 1);
                 const int first = load(w.x), second = load(w.x);
                 w.seen[t] = 10 * first + second;
               }),
      [](const std::vector<int>& o) { return (o[2] == 12 && o[3] == 21) || (o[2] == 21 && o[3] == 12); }));
}

// Read-modify-writes read the newest: none is lost, none is seen twice.
void test_changes() {
  for (const std::vector<int>&o : outcomes(4, [](unsigned t, Words& w) {
         load(w.x);
         w.seen[t] = add(w.x, 1);
       })) {
    CHECK(o[4] == 4 && (std::set<int>(o.begin(), o.begin() + 4).size() == 4));
  }
  for (const std::vector<int>&o : outcomes(4, [](unsigned t, Words& w) {
         if (load(w.x) == 0) w.seen[t] = atomicCAS(&w.x, 0, 1) == 0;
       })) {
    CHECK(o[0] + o[1] + o[2] + o[3] == 1 && o[4] == 1);
  }
  // Nor does a store come between one and what it has read.
  for (const std::vector<int>&o : outcomes(2, [](unsigned t, Words& w) {
         if (t == 0) return store(w.x, 5);
         w.seen[1] = add(w.x, 1);
       })) {
    CHECK(o[4] == (o[1] == 5 ? 6 : 5));
  }
}

// Independent writes are seen in different orders by two readers, and written in two orders by two writers.
void test_no_common_order() {
  const auto program = [](memory_order order) {
    return [=](unsigned t, Words& w) {
      if (t < 2) return store(t ? w.y : w.x, 1, order);
      const int first = load(t == 2 ? w.x : w.y, order), second = load(t == 2 ? w.y : w.x, order);
      w.seen[t] = first == 1 && second == 0;
    };
  };
  const auto both = [](const std::vector<int>& o) { return o[2] && o[3]; };
  CHECK(any(outcomes(4, program(memory_order_relaxed)), both));
  CHECK(!any(outcomes(4, program(memory_order_seq_cst)), both));
  const auto crossed = [](const std::vector<int>& o) { return o[4] == 1 && o[5] == 1; };
  const auto writers = [](unsigned t, Words& w) {
    store(t ? w.y : w.x, 1);
    store(t ? w.x : w.y, 2);
  };
  CHECK(any(outcomes(2, writers), crossed));
  CHECK(!any(outcomes(2, writers, Memory::kNewest), crossed));
}

// Barriers of a block or a warp order memory among those who meet there; shuffles do not.
void test_barriers() {
  const auto missed = [](const std::vector<int>& o) { return o[1] == 0; };
  const auto program = [](int how) {
    return [=](unsigned t, Words& w) {
      if (t == 0) store(w.x, 1);
      if (how == 0) __syncthreads();
      if (how == 1) __syncwarp();
      if (how == 2) __shfl_sync(0xffffffffu, t, 0);
      if (how == 3 && t < 2) __syncwarp(3);
      if (t == 1) w.seen[1] = load(w.x);
    };
  };
  CHECK(!any(outcomes(32, program(0), Memory::kRelaxed, true), missed));
  CHECK(!any(outcomes(32, program(1), Memory::kRelaxed, true), missed));
  CHECK(any(outcomes(32, program(2), Memory::kRelaxed, true), missed));
  CHECK(!any(outcomes(32, program(3), Memory::kRelaxed, true), missed));
  // What one of a block has read from elsewhere, all of it know after the barrier; that others have written
  // more, they do not.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    emulation::clear();
    settings.policy = Policy::kRandom;
    settings.seed = seed;
    int x = 0, before[64] = {}, after[64] = {};
    emulation::launch(2, 32, [&] {
      if (blockIdx.x == 1) return store(x, int(threadIdx.x) + 1);
      before[threadIdx.x] = load(x);
      __syncthreads();
      after[threadIdx.x] = load(x);
    });
    for (int t = 0; t < 32; ++t) {
      if (before[t] > 0) CHECK(std::count(after, after + 32, 0) == 0);
    }
  }
}

// The pattern of kernels whose last thread does the rest: it counts on fences on both sides of the counter.
void test_last_one() {
  const auto program = [](bool fence) {
    return [=](unsigned t, Words& w) {
      store(t ? w.y : w.x, 1);
      if (fence) __threadfence();
      if (add(w.seen[3], 1) < 1) return;
      if (fence) __threadfence();
      w.seen[0] = load(w.x) + load(w.y);
    };
  };
  const auto missed = [](const std::vector<int>& o) { return o[0] != 2; };
  CHECK(any(outcomes(2, program(false)), missed));
  CHECK(!any(outcomes(2, program(false), Memory::kNewest), missed));
  CHECK(!any(outcomes(2, program(true)), missed));
}

// The next launch sees everything; waiting for a value ends; a seed replays.
void test_launches() {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<int> order[2];
    for (std::vector<int>& seen : order) {
      emulation::clear();
      settings = {};
      settings.policy = Policy(1 + seed % 3);
      settings.seed = seed;
      settings.memory = Memory::kRelaxed;
      int x = 0, read[64];
      emulation::launch(2, 32, [&] {
        store(x, 1 + int(threadIdx.x));
        read[blockIdx.x * 32 + threadIdx.x] = load(x);
      });
      seen.assign(read, read + 64);
      const int left = x;
      emulation::launch(2, 32, [&] { read[blockIdx.x * 32 + threadIdx.x] = load(x); });
      CHECK(std::count(read, read + 64, left) == 64);
      emulation::launch(1, 2, [&] {
        if (threadIdx.x == 0) return store(x, -1);
        while (load(x) != -1) continue;
      });
      CHECK(emulation::record.failure.empty());
    }
    CHECK(order[0] == order[1]);
  }
}

// A word that is also written plainly, as before a barrier: from then on that value counts.
void test_plain_writes() {
  for (const std::vector<int>&o : outcomes(
           32,
           [](unsigned t, Words& w) {
             add(w.x, 1);
             __syncthreads();
             if (t == 0) w.x = 0;
             __syncthreads();
             if (t < 4) w.seen[t] = load(w.x);
           },
           Memory::kRelaxed, true)) {
    CHECK(o == std::vector<int>(6, 0));
  }
}

}  // namespace
}  // namespace gpn::test

int main(int argc, char** argv) {
  using namespace gpn::test;
  test_store_buffering();
  test_message_passing();
  test_release_sequence();
  test_coherence();
  test_changes();
  test_no_common_order();
  test_barriers();
  test_last_one();
  test_launches();
  test_plain_writes();
  return for_seeds(argc, argv, 1500, [](emulation::Random& random, uint64_t seed) {
    random.below(2) ? test_parse<int32_t>(random, seed) : test_parse<int64_t>(random, seed);
  });
}
