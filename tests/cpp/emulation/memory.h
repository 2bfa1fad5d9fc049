// What a relaxed load may return. A launch keeps, for every word that its threads use atomically, the last
// few values in the order in which they were written (the modification order). A load takes any of them that
// is not older than what its thread already knows of: what it has read or written itself, and what others
// knew at a barrier, a fence or a release that it has met since. A read-modify-write reads the newest and
// adds to the end; nothing comes between it and what it read. A store may take a place before the newest
// values that its thread has not seen. The start and the end of a launch publish everything: nothing outlives
// it.
//
// This is the view-based reading of C++'s and PTX's relaxed atomics (Kang et al., 2017), without values from
// the future: a load never returns what is stored later on. Scopes are not told apart. Plain accesses see
// the newest value; ThreadSanitizer watches those.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulation.h"

namespace emulation {

class RelaxedMemory {
 public:
  void start_launch(size_t threads, uint64_t seed) {
    words_.clear();
    threads_.assign(threads, {});
    ordered_.clear();
    random_ = Random(seed);
    style_ = Style(random_.below(3));
  }
  void start_thread(size_t thread) { threads_[thread] = {}; }
  // For memory that others use next, such as a block's shared memory.
  void forget() { start_launch(threads_.size(), random_()); }

  uint64_t load(size_t thread, const void* address, uint64_t newest, Order order, bool take_newest) {
    if (order == Order::kSequential) fence(thread);
    Thread& self = threads_[thread];
    Word& word = word_at(address, newest);
    const size_t last = word.values.size() - 1, oldest = take_newest ? last : known(self, word);
    const Value& value = word.values[choose(oldest, last)];
    self.seen[&word] = value.id;
    if (value.published) join(acquires(order) ? self.seen : self.met, *value.published);
    return value.bits;
  }

  // What stands in memory afterwards.
  uint64_t store(size_t thread, const void* address, uint64_t newest, uint64_t bits, Order order) {
    if (order == Order::kSequential) fence(thread);
    Thread& self = threads_[thread];
    Word& word = word_at(address, newest);
    size_t at = word.values.size();
    if (random_.below(4) == 0)
      at = known(self, word) + 1 + size_t(random_.below(int64_t(at - known(self, word))));
    while (at < word.values.size() && word.values[at].follows) ++at;
    put(self, word, at, {bits, ++last_id_, false, nullptr}, order);
    return word.values.back().bits;
  }

  void change(size_t thread, const void* address, uint64_t before, uint64_t after, Order order) {
    load(thread, address, before, order, true);
    Thread& self = threads_[thread];
    Word& word = word_at(address, before);
    // It carries on what the value that it replaces published (a release sequence).
    put(self, word, word.values.size(), {after, ++last_id_, true, word.values.back().published}, order);
  }

  // As __threadfence(), a fence of sequential consistency: fences have an order, and a later one knows all
  // that an earlier one knew.
  void fence(size_t thread) {
    Thread& self = threads_[thread];
    join(self.seen, self.met);
    if (self.common) join(self.seen, *self.common);
    join(self.seen, ordered_);
    ordered_ = self.seen;
    self.fenced = std::make_shared<const View>(self.seen);
  }

  // A barrier: each of them knows from now on what any of them knew.
  void meet(const std::vector<size_t>& group) {
    View all;
    const View* last_common = nullptr;
    for (const size_t thread : group) {
      join(all, threads_[thread].seen);
      const View* common = threads_[thread].common.get();
      if (common != nullptr && common != last_common) join(all, *common);
      last_common = common;
    }
    const auto shared = std::make_shared<const View>(std::move(all));
    for (const size_t thread : group) {
      threads_[thread].seen.clear();
      threads_[thread].common = shared;
    }
  }

 private:
  static constexpr size_t kKept = 8;
  enum class Style { kAny, kMostlyOldest, kMostlyNewest };

  struct Word;
  using View = std::unordered_map<Word*, uint64_t>;  // the newest value known of a word, by its id

  struct Value {
    uint64_t bits;
    uint64_t id;
    bool follows;                           // the value before it: no store may come between
    std::shared_ptr<const View> published;  // what its writer knew, if it said so
  };
  struct Word {
    std::vector<Value> values;  // oldest first
  };
  struct Thread {
    View seen;
    View met;                            // what was published with values it has read: known after a fence
    std::shared_ptr<const View> fenced;  // what it knew at its last fence
    std::shared_ptr<const View> common;  // what all knew at the last barrier
  };

  static bool acquires(Order order) { return order != Order::kRelaxed && order != Order::kRelease; }
  static bool releases(Order order) { return order != Order::kRelaxed && order != Order::kAcquire; }

  // Values that are no longer kept count as the oldest.
  static size_t position(const Word& word, uint64_t id) {
    size_t at = word.values.size() - 1;
    while (at > 0 && word.values[at].id != id) --at;
    return at;
  }
  static size_t position(const View& view, const Word& word) {
    const auto found = view.find(const_cast<Word*>(&word));
    return found == view.end() ? 0 : position(word, found->second);
  }
  static size_t known(const Thread& thread, const Word& word) {
    const size_t own = position(thread.seen, word);
    return thread.common ? std::max(own, position(*thread.common, word)) : own;
  }
  static void join(View& into, const View& from) {
    for (const auto& [word, id] : from) {
      uint64_t& known_id = into[word];
      if (position(*word, id) >= position(*word, known_id)) known_id = id;
    }
  }

  Word& word_at(const void* address, uint64_t newest) {
    Word& word = words_[address];
    // Written plainly meanwhile: only that value counts.
    if (word.values.empty() || word.values.back().bits != newest) {
      word.values.assign(1, {newest, ++last_id_, false, nullptr});
    }
    return word;
  }

  size_t choose(size_t oldest, size_t last) {
    if (oldest == last) return last;
    if (style_ != Style::kAny && random_.below(4) != 0) return style_ == Style::kMostlyOldest ? oldest : last;
    return oldest + size_t(random_.below(int64_t(last - oldest + 1)));
  }

  void put(Thread& self, Word& word, size_t at, Value value, Order order) {
    self.seen[&word] = value.id;
    word.values.insert(word.values.begin() + std::ptrdiff_t(at), value);
    if (releases(order) || self.fenced) {
      View published = releases(order) ? self.seen : *self.fenced;
      if (releases(order) && self.common) join(published, *self.common);
      published[&word] = value.id;
      if (value.published) join(published, *value.published);
      word.values[at].published = std::make_shared<const View>(std::move(published));
    }
    if (word.values.size() > kKept) word.values.erase(word.values.begin());
  }

  std::unordered_map<const void*, Word> words_;  // by address; references stay valid
  std::vector<Thread> threads_;
  View ordered_;  // what the fences so far knew
  Random random_{0};
  Style style_ = Style::kAny;
  uint64_t last_id_ = 0;
};

}  // namespace emulation
