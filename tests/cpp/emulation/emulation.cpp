#include "emulation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>

#include "context.h"
#include "cuda_runtime.h"
#include "memory.h"
#include "sanitizers.h"

Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {
namespace {

constexpr size_t kStackBytes = 128 << 10;

struct Block;

enum class State { kReady, kAtBarrier, kAtWarp, kAtShared, kFinished };

// One CUDA thread at a time; the fiber itself is used again by later threads.
struct Fiber {
  Context context;
  char* stack = nullptr;
  FiberOfSanitizer sanitizer;

  State state = State::kFinished;
  Block* block = nullptr;
  unsigned thread = 0;
  size_t position = 0;  // in Machine::fibers_
  size_t ready_at = 0;  // in Machine::ready_
  uint64_t priority = 0;

  Place place;  // of the barrier or warp intrinsic where it waits
  unsigned mask = 0;
  uint64_t value = 0;
  uint64_t values[32];  // of the warp, after an exchange
};

// A barrier is passed again before everyone has noticed the last time, hence two tokens in turn:
// ThreadSanitizer must not take what happens after one barrier for ordered by it.
struct Barrier {
  char token[2] = {};
  unsigned passed = 0;
};

struct Block {
  unsigned index = 0;
  unsigned alive = 0;
  std::vector<Fiber*> threads;
  Barrier barrier;
  std::vector<Barrier> warp_barriers;
};

// The emulation's own bookkeeping is no business of ThreadSanitizer's.
struct Unseen {
  Unseen() { begin_unseen(); }
  ~Unseen() { end_unseen(); }
};

class Machine {
 public:
  void run(unsigned blocks, unsigned threads, const std::function<void()>& call, const void* body,
           size_t bytes);
  bool running() const { return current_ != nullptr; }
  Fiber& current() { return *current_; }
  void step();
  void sync_block(Place place);
  void sync_warp(unsigned mask, Place place);
  const uint64_t* exchange(unsigned mask, uint64_t value, Place place);
  void enter_shared();
  RelaxedMemory& memory() { return memory_; }

 private:
  static void fiber_main();
  void make(Fiber& fiber);
  void start_block(Block& block);
  void finish_thread();
  void set_ready(Fiber& fiber);
  void leave_ready(State state);
  void wait(State state, Place place);
  Fiber* next();
  Fiber* next_in_order();
  void go_on();
  void switch_to(Fiber* fiber);
  void meet(unsigned mask, uint64_t value, bool orders, Place place);
  void share_views(const std::vector<Fiber*>& threads);
  void note(const std::string& text);
  [[noreturn]] void abandon();
  std::string who_waits();

  const std::function<void()>* body_ = nullptr;
  Random random_{0};
  RelaxedMemory memory_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Block> blocks_;      // the resident ones
  std::vector<unsigned> pending_;  // indices of blocks to start, last one first
  std::vector<Fiber*> ready_;      // the running one included
  Fiber* current_ = nullptr;
  Fiber host_;                     // the caller of launch()
  Block* shared_owner_ = nullptr;  // the block that may use shared memory
  bool new_ready_ = false;         // a thread became ready since the last choice
  uint64_t lowest_priority_ = 0;
  int64_t steps_ = 0;
  size_t fibers_in_use_ = 0;
  char launch_token_ = 0, end_token_ = 0, shared_token_ = 0;
};

Machine machine;

// ------------------------------------------------------------------------------------------------ fibers

void Machine::make(Fiber& fiber) {
  if (fiber.stack == nullptr) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    void* memory =
        mmap(nullptr, page + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED ||
        mprotect(memory, page, PROT_NONE) != 0) {  // the lowest page catches overflows
      std::perror("emulation: no memory for stacks");
      std::abort();
    }
    fiber.stack = static_cast<char*>(memory) + page;
  }
  fiber.sanitizer.make(fiber.stack, kStackBytes);
  fiber.context.make(fiber.stack, kStackBytes, &Machine::fiber_main);
}

void Machine::fiber_main() {
  machine.current_->sanitizer.arrived();
  end_unseen();
  while (true) {
    acquire(&machine.launch_token_);
    (*machine.body_)();
    release(&machine.end_token_);
    machine.finish_thread();
  }
}

// To the fiber, or to the host for nullptr.
void Machine::switch_to(Fiber* fiber) {
  Fiber& from = current_ == nullptr ? host_ : *current_;
  Fiber& to = fiber == nullptr ? host_ : *fiber;
  current_ = fiber;
  if (fiber != nullptr) {
    threadIdx.x = fiber->thread;
    blockIdx.x = fiber->block->index;
  }
  if (&from == &to) return;
  from.sanitizer.leave(to.sanitizer);
  from.context.switch_to(to.context);
  from.sanitizer.arrived();
}

// ------------------------------------------------------------------------------------------- the scheduler

void Machine::set_ready(Fiber& fiber) {
  fiber.state = State::kReady;
  fiber.ready_at = ready_.size();
  ready_.push_back(&fiber);
  new_ready_ = true;
}

// The current one is no longer ready.
void Machine::leave_ready(State state) {
  current_->state = state;
  ready_.back()->ready_at = current_->ready_at;
  std::swap(ready_[current_->ready_at], ready_.back());
  ready_.pop_back();
}

// The next ready one after the current one, by position.
Fiber* Machine::next_in_order() {
  size_t at = current_ == nullptr ? fibers_in_use_ - 1 : current_->position;
  for (size_t i = 0; i < fibers_in_use_; ++i) {
    at = at + 1 < fibers_in_use_ ? at + 1 : 0;
    if (fibers_[at]->state == State::kReady) return fibers_[at].get();
  }
  return nullptr;
}

Fiber* Machine::next() {
  if (ready_.empty()) return nullptr;
  const bool can_stay = current_ != nullptr && current_->state == State::kReady;
  switch (settings.policy) {
    case Policy::kSequential: return can_stay ? current_ : next_in_order();
    case Policy::kRoundRobin: return next_in_order();
    case Policy::kRandom:
      return can_stay && random_.below(2) ? current_ : ready_[random_.below(int64_t(ready_.size()))];
    case Policy::kPriority: break;
  }
  const bool falls = random_.below(32) == 0;
  if (can_stay && falls) current_->priority = --lowest_priority_;
  if (can_stay && !falls && !new_ready_) return current_;
  new_ready_ = false;
  Fiber* best = ready_[0];
  for (Fiber* fiber : ready_) {
    if (fiber->priority > best->priority) best = fiber;
  }
  return best;
}

void Machine::go_on() {
  Fiber* fiber = next();
  if (fiber == nullptr) {
    for (const Block& block : blocks_) {
      if (block.alive == 0) continue;
      note("threads wait for others that never come:" + who_waits());
      abandon();
    }
  }
  switch_to(fiber);
}

void Machine::step() {
  const Unseen unseen;
  if (++steps_ > settings.most_steps) {
    note("no end after " + std::to_string(steps_) + " steps:" + who_waits());
    abandon();
  }
  go_on();
}

void Machine::wait(State state, Place place) {
  current_->place = place;
  leave_ready(state);
  go_on();
}

// ------------------------------------------------------------------------------------------------- launches

void Machine::start_block(Block& block) {
  block.index = pending_.back();
  pending_.pop_back();
  block.alive = unsigned(block.threads.size());
  // A fiber is one thread to ThreadSanitizer, so two CUDA threads that use it in turn cannot race: mix who
  // gets which.
  if (settings.policy != Policy::kSequential) {
    std::rotate(block.threads.begin(), block.threads.begin() + random_.below(block.alive),
                block.threads.end());
  }
  for (unsigned t = 0; t < block.alive; ++t) {
    Fiber& fiber = *block.threads[t];
    fiber.block = &block;
    fiber.thread = t;
    fiber.priority = random_() | uint64_t(1) << 63;
    if (settings.memory == Memory::kRelaxed) memory_.start_thread(fiber.position);
    set_ready(fiber);
  }
}

void Machine::finish_thread() {
  const Unseen unseen;
  Block& block = *current_->block;
  release(&shared_token_);
  leave_ready(State::kFinished);
  if (--block.alive == 0) {
    if (observer != nullptr) {
      std::vector<size_t> slots;
      for (const Fiber* fiber : block.threads) slots.push_back(fiber->position);
      observer->block_ends(slots);
    }
    if (shared_owner_ == &block) {
      shared_owner_ = nullptr;
      if (settings.memory == Memory::kRelaxed) memory_.forget();
      for (size_t i = 0; i < fibers_in_use_; ++i) {
        if (fibers_[i]->state == State::kAtShared) set_ready(*fibers_[i]);
      }
    }
    if (!pending_.empty()) start_block(block);
  }
  go_on();
}

void Machine::run(unsigned blocks, unsigned threads, const std::function<void()>& call, const void* body,
                  size_t bytes) {
  const OnDevice on_device;
  ++record.launches;
  record.blocks = blocks;
  record.threads = threads;
  if (running()) {
    record.failure = "emulation: a kernel launches a kernel";
    return;
  }
  if (blocks == 0 || threads == 0 || threads > 1024) {
    record.failure = "emulation: no launch has " + std::to_string(blocks) + " blocks of " +
                     std::to_string(threads) + " threads";
    return;
  }
  body_ = &call;
  blockDim.x = threads;
  gridDim.x = blocks;
  const uint64_t random_seed = settings.seed + 0x5eed * uint64_t(record.launches);
  random_ = Random(random_seed);
  steps_ = 0;
  lowest_priority_ = uint64_t(1) << 62;
  shared_owner_ = nullptr;
  ready_.clear();

  pending_.resize(blocks);
  std::iota(pending_.rbegin(), pending_.rend(), 0u);
  size_t resident = std::clamp<size_t>(settings.resident_threads / threads, 1, blocks);
  if (settings.policy != Policy::kSequential) {
    for (unsigned i = blocks; i > 1; --i) std::swap(pending_[i - 1], pending_[random_.below(i)]);
    resident = 1 + size_t(random_.below(int64_t(resident)));
  }
  fibers_in_use_ = resident * threads;
  while (fibers_.size() < fibers_in_use_) {
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->position = fibers_.size() - 1;
    make(*fibers_.back());
  }
  if (settings.memory == Memory::kRelaxed) memory_.start_launch(fibers_in_use_, ~random_seed);
  host_.sanitizer.make_host();
  blocks_.assign(resident, {});
  for (size_t b = 0; b < resident; ++b) {
    for (unsigned t = 0; t < threads; ++t) blocks_[b].threads.push_back(fibers_[b * threads + t].get());
    blocks_[b].warp_barriers.resize((threads + 31) / 32);
    start_block(blocks_[b]);
  }
  if (observer != nullptr) observer->launch_starts(body, bytes, fibers_in_use_);
  release(&launch_token_);
  {
    const Unseen unseen;
    go_on();
  }
  if (!record.failure.empty()) {
    for (size_t i = 0; i < fibers_in_use_; ++i) {  // they stand where the failure met them
      fibers_[i]->state = State::kFinished;
      fibers_[i]->sanitizer.release(&end_token_);
      make(*fibers_[i]);
    }
  }
  acquire(&end_token_);
  if (observer != nullptr) observer->launch_ends();
}

void Machine::note(const std::string& text) {
  record.failure = "emulation: block " + std::to_string(blockIdx.x) + ", thread " +
                   std::to_string(threadIdx.x) + ": " + text + "\n  policy " + name_of(settings.policy) +
                   ", seed " + std::to_string(settings.seed);
}

// Ends the launch: run() makes the fibers anew. What lives on their stacks is lost, so nothing may own memory
// here.
void Machine::abandon() {
  switch_to(nullptr);
  std::abort();
}

std::string Machine::who_waits() {
  std::string text;
  int shown = 0;
  for (size_t i = 0; i < fibers_in_use_ && shown < 8; ++i) {
    const Fiber& fiber = *fibers_[i];
    if (fiber.state == State::kFinished) continue;
    const char* what = fiber.state == State::kAtBarrier  ? "waits at a barrier"
                       : fiber.state == State::kAtWarp   ? "waits for its warp"
                       : fiber.state == State::kAtShared ? "waits for shared memory"
                                                         : "could go on";
    text += "\n  block " + std::to_string(fiber.block->index) + ", thread " + std::to_string(fiber.thread) +
            " " + what;
    if (fiber.state == State::kAtBarrier || fiber.state == State::kAtWarp) {
      text += std::string(" at ") + fiber.place.file_name() + ":" + std::to_string(fiber.place.line());
    }
    ++shown;
  }
  return shown == 8 ? text + "\n  and so on" : text;
}

// --------------------------------------------------------------------------------- barriers and exchanges

bool same(const Place& a, const Place& b) { return a.line() == b.line() && a.column() == b.column(); }

std::string describe(const Place& place) {
  return std::string(place.file_name()) + ":" + std::to_string(place.line());
}

void Machine::sync_block(Place place) {
  char* token;
  {
    const Unseen unseen;
    Block& block = *current_->block;
    token = &block.barrier.token[block.barrier.passed % 2];
    release(token);
    size_t waiting = 0;
    for (const Fiber* fiber : block.threads) {
      if (fiber->state != State::kAtBarrier) continue;
      ++waiting;
      if (!same(fiber->place, place)) {
        note("threads of a block wait at different barriers: " + describe(fiber->place) + " and " +
             describe(place));
        abandon();
      }
    }
    if (waiting + 1 == block.threads.size()) {
      ++block.barrier.passed;
      share_views(block.threads);
      for (Fiber* fiber : block.threads) {
        if (fiber != current_) set_ready(*fiber);
      }
      go_on();
    } else {
      wait(State::kAtBarrier, place);
    }
  }
  acquire(token);
}

// The threads know from now on what any of them knew of memory.
void Machine::share_views(const std::vector<Fiber*>& threads) {
  if (settings.memory != Memory::kRelaxed) return;
  std::vector<size_t> group;
  for (const Fiber* fiber : threads) group.push_back(fiber->position);
  memory_.meet(group);
}

// Returns when all lanes of the mask have come, with their values in the caller's fiber.
void Machine::meet(unsigned mask, uint64_t value, bool orders, Place place) {
  Fiber& self = *current_;
  const unsigned first = self.thread / 32 * 32;
  if ((mask >> self.thread % 32 & 1) == 0) {
    note("the mask leaves out the calling lane, at " + describe(place));
    abandon();
  }
  self.mask = mask;
  self.value = value;
  std::vector<Fiber*>& threads = self.block->threads;
  bool complete = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0 || first + lane == self.thread) continue;
    const Fiber* other = first + lane < threads.size() ? threads[first + lane] : nullptr;
    if (other == nullptr || other->state != State::kAtWarp || (other->mask >> self.thread % 32 & 1) == 0) {
      complete = false;
    } else if (other->mask != mask || !same(other->place, place)) {
      note("lanes of a warp meet with different masks or at different places: " + describe(other->place) +
           " and " + describe(place));
      abandon();
    }
  }
  if (!complete) return wait(State::kAtWarp, place);

  ++self.block->warp_barriers[first / 32].passed;
  if (orders) {
    std::vector<Fiber*> lanes;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (mask >> lane & 1) lanes.push_back(threads[first + lane]);
    }
    share_views(lanes);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    self.values[lane] = mask >> lane & 1 ? threads[first + lane]->value : random_();
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    Fiber* other = mask >> lane & 1 ? threads[first + lane] : &self;
    if (other == &self) continue;
    std::copy(self.values, self.values + 32, other->values);
    set_ready(*other);
  }
  go_on();
}

const uint64_t* Machine::exchange(unsigned mask, uint64_t value, Place place) {
  const Unseen unseen;
  meet(mask, value, false, place);  // exchanges order no memory
  return current_->values;
}

void Machine::sync_warp(unsigned mask, Place place) {
  char* token;
  {
    const Unseen unseen;
    Barrier& barrier = current_->block->warp_barriers[current_->thread / 32];
    token = &barrier.token[barrier.passed % 2];
    release(token);
    meet(mask, 0, true, place);
  }
  acquire(token);
}

// Shared memory is one static variable for all blocks, so they own it in turn.
void Machine::enter_shared() {
  {
    const Unseen unseen;
    while (shared_owner_ != nullptr && shared_owner_ != current_->block) wait(State::kAtShared, {});
    shared_owner_ = current_->block;
  }
  acquire(&shared_token_);
}

}  // namespace

// --------------------------------------------------------------------------------------------- the interface

const char* name_of(Policy policy) {
  const char* names[kPolicies] = {"sequential", "round robin", "random", "priority"};
  return names[int(policy)];
}

void launch_body(unsigned blocks, unsigned threads, const std::function<void()>& call, const void* body,
                 size_t bytes) {
  machine.run(blocks, threads, call, body, bytes);
}
size_t slot_of_thread() { return machine.current().position; }
bool in_kernel() { return machine.running(); }
void schedule_point() {
  if (machine.running()) machine.step();
}
void sync_block(Place place) { machine.sync_block(place); }
void sync_warp(unsigned mask, Place place) { machine.sync_warp(mask, place); }
const uint64_t* exchange(unsigned mask, uint64_t value, Place place) {
  return machine.exchange(mask, value, place);
}
bool asks_memory() { return settings.memory == Memory::kRelaxed && machine.running(); }
uint64_t loaded(const void* word, uint64_t newest, Order order, bool take_newest) {
  const Unseen unseen;
  return machine.memory().load(machine.current().position, word, newest, order, take_newest);
}
uint64_t stored(const void* word, uint64_t newest, uint64_t value, Order order) {
  const Unseen unseen;
  return machine.memory().store(machine.current().position, word, newest, value, order);
}
void changed(const void* word, uint64_t before, uint64_t after, Order order) {
  const Unseen unseen;
  machine.memory().change(machine.current().position, word, before, after, order);
}
unsigned thread_of_block() { return threadIdx.x; }
void enter_shared() { machine.enter_shared(); }

// Orders with all other fences: more than CUDA promises, but what is published with a fence is not reported
// as a race.
void fence() {
  static char token;
  schedule_point();
  release(&token);
  acquire(&token);
  if (!asks_memory()) return;
  const Unseen unseen;
  machine.memory().fence(machine.current().position);
}

void assertion_failed(const char* text, const char* file, unsigned line, const char* function) {
  const std::string full = std::string(file) + ":" + std::to_string(line) + ": " + function + ": " + text;
  if (!machine.running()) {
    std::fprintf(stderr, "%s\n", full.c_str());
    std::abort();
  }
  const Unseen unseen;
  record.assertions.push_back(full);
}

}  // namespace emulation
