// The distinct edges of a list after its nodes were renamed, sorted by row then column, on the CPU. Edges are
// scattered to buckets of neighbouring rows that fit the cache, and each bucket is sorted by counting digits:
// linear work, no comparisons.
#pragma once

#include <atomic>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "../core/atomic.h"
#include "../core/errors.h"
#include "blocks.h"
#include "parallel.h"

namespace gpn::cpu {

// Where the parts of an edge lie in one word: row within the bucket, column, edge id (if asked for), from
// high to low.
struct EdgeLayout {
  int64_t id_bits, bucket_bits, local_bits, edge_bits;

  // A bucket holds about `bucket` edges: two copies of it stay in the second-level cache.
  EdgeLayout(int64_t count, int64_t num_ids, bool with_edge, int64_t bucket = 8192)
      : id_bits(bits_for(num_ids)),
        bucket_bits(std::min({int64_t(std::bit_width(uint64_t(count / bucket))), id_bits, kMostBucketBits})),
        local_bits(id_bits - bucket_bits),
        edge_bits(with_edge ? bits_for(count) : 0) {}

  int64_t buckets() const { return int64_t(1) << bucket_bits; }
  int64_t key_bits() const { return local_bits + id_bits; }
  int64_t word_bits() const { return key_bits() + edge_bits; }

 private:
  static constexpr int64_t kMostBucketBits = 11;
  // Enough for all numbers below `count`.
  static int64_t bits_for(int64_t count) { return std::bit_width(uint64_t(std::max<int64_t>(count - 1, 0))); }
};

// Sorts words by their bits [low, low + bits), stably. `spare` has room for as many words.
template <class Count, class Word>
void sort_words(Word* words, Word* spare, int64_t size, int64_t low, int64_t bits,
                std::vector<Count>& counts) {
  constexpr int64_t kMostDigit = 11;
  const int64_t digits = (bits + kMostDigit - 1) / kMostDigit;
  if (digits == 0 || size < 2) return;
  const int64_t digit_bits = (bits + digits - 1) / digits;
  const int64_t values = int64_t(1) << digit_bits;
  const auto digit = [=](Word word, int64_t d) {
    return uint32_t(word >> (low + d * digit_bits)) & uint32_t(values - 1);
  };

  counts.assign(digits * values, 0);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t d = 0; d < digits; ++d) ++counts[d * values + digit(words[i], d)];
  }
  Word* from = words;
  Word* to = spare;
  for (int64_t d = 0; d < digits; ++d) {
    Count* next = counts.data() + d * values;
    std::exclusive_scan(next, next + values, next, Count(0));
    for (int64_t i = 0; i < size; ++i) to[next[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::copy_n(from, size, words);
}

// Usage: scatter, then sort, which says how many distinct edges there are, then write.
template <class Parallel, class View, class Word>
class UniqueEdges {
 public:
  // words: scratch for edges.count words.
  UniqueEdges(const Parallel& parallel, const Edges& edges, View view, EdgeLayout layout, Word* words)
      : parallel_(parallel),
        edges_(edges),
        view_(view),
        layout_(layout),
        words_(words),
        pieces_{edges.count, parallel.tasks(edges.count)},
        next_(pieces_.tasks * layout.buckets(), 0),
        start_(layout.buckets() + 1, 0),
        size_(layout.buckets(), 0),
        unique_(layout.buckets() + 1, 0) {}

  // False if a node id is out of range or the view does not accept an edge. slot, if not null: -1 for every
  // edge.
  bool scatter(int64_t* slot) {
    std::atomic<bool> bad = false;
    // Dropped edges are counted as well: to know them would need a second look at the cluster of every
    // column.
    for_each_block([&](int64_t task, int64_t block, int64_t count) {
      const int64_t* row = edges_.row + block;
      const int64_t* col = edges_.col + block;
      if (!fit(row, count) || (View::kRowNeedsCol && !fit(col, count))) return !(bad = true);
      const auto [view, layout] = std::pair(view_, layout_);  // copies, which no store can change
      int64_t* next = next_.data() + task * layout.buckets();
      for (int64_t i = 0; i < count; ++i) ++next[view.row(row[i], col[i]) >> layout.local_bits];
      return true;
    });
    if (bad) return false;

    int64_t total = 0;
    for (int64_t bucket = 0; bucket < layout_.buckets(); ++bucket) {
      start_[bucket] = total;
      for (int64_t task = 0; task < pieces_.tasks; ++task) {
        total += std::exchange(next_[task * layout_.buckets() + bucket], total);
      }
    }
    start_.back() = total;
    first_ = next_;

    const uint64_t local_mask = (uint64_t(1) << layout_.local_bits) - 1;
    for_each_block([&](int64_t task, int64_t block, int64_t count) {
      const int64_t* row = edges_.row + block;
      const int64_t* col = edges_.col + block;
      if (!fit(col, count) || !view_.accepts(row, col, count)) return !(bad = true);
      const auto [view, layout] = std::pair(view_, layout_);
      int64_t* next = next_.data() + task * layout.buckets();
      Word* words = words_;
      for (int64_t i = 0; i < count; ++i) {
        if (i + kAhead < count) view.fetch(col[i + kAhead]);
        const uint64_t r = view.row(row[i], col[i]), c = view.col(row[i], col[i]);
        int64_t& at = next[r >> layout.local_bits];
        Word word = Word(r & local_mask) << layout.id_bits | Word(c);
        if (layout.edge_bits > 0) word = word << layout.edge_bits | Word(block + i);
        words[at] = word;  // a dropped edge has its place too, which the next one takes
        at += view.keeps(r, c);
      }
      if (slot) std::fill(slot + block, slot + block + count, -1);
      return true;
    });
    return !bad;
  }

  // How many distinct edges there are. `scratch(bytes)` gives memory that lasts until this returns.
  template <class Scratch>
  int64_t sort(const Scratch& scratch) {
    int64_t largest = 0;
    for (int64_t bucket = 0; bucket < layout_.buckets(); ++bucket) {
      largest = std::max(largest, start_[bucket + 1] - start_[bucket]);
    }
    Word* spare = static_cast<Word*>(scratch(pieces_.tasks * largest * sizeof(Word)));
    parallel_(pieces_.tasks, [&](int64_t task) {
      std::vector<uint32_t> counts;
      std::vector<uint64_t> large_counts;
      Word* own = spare + task * largest;
      for (int64_t bucket = first_bucket(task); bucket < first_bucket(task + 1); ++bucket) {
        const int64_t size = close_gaps(bucket);
        Word* words = words_ + start_[bucket];
        if (size <= int64_t(UINT32_MAX)) {
          sort_words(words, own, size, layout_.edge_bits, layout_.key_bits(), counts);
        } else {
          sort_words(words, own, size, layout_.edge_bits, layout_.key_bits(), large_counts);
        }
        int64_t distinct = size > 0;
        for (int64_t i = 1; i < size; ++i) distinct += key(words[i]) != key(words[i - 1]);
        size_[bucket] = size;
        unique_[bucket + 1] = distinct;
      }
    });
    std::partial_sum(unique_.begin(), unique_.end(), unique_.begin());
    return unique_.back();
  }

  // row, col: [distinct]; slot: [edges.count], or null.
  void write(int64_t* row, int64_t* col, int64_t* slot) const {
    const uint64_t col_mask = layout_.id_bits < 64 ? (uint64_t(1) << layout_.id_bits) - 1 : ~uint64_t(0);
    const Word edge_mask = (Word(1) << layout_.edge_bits) - 1;
    parallel_(pieces_.tasks, [&](int64_t task) {
      for (int64_t bucket = first_bucket(task); bucket < first_bucket(task + 1); ++bucket) {
        const Word* words = words_ + start_[bucket];
        int64_t at = unique_[bucket] - 1;
        for (int64_t i = 0; i < size_[bucket]; ++i) {
          at += i == 0 || key(words[i]) != key(words[i - 1]);
          row[at] = bucket << layout_.local_bits | int64_t(key(words[i]) >> layout_.id_bits);
          col[at] = int64_t(uint64_t(key(words[i])) & col_mask);
          if (slot) slot[int64_t(words[i] & edge_mask)] = at;
        }
      }
    });
  }

 private:
  // f(task, first edge, how many), until it says stop.
  template <class F>
  void for_each_block(const F& f) {
    parallel_(pieces_.tasks, [&](int64_t task) {
      for (int64_t block = pieces_.begin(task); block < pieces_.end(task); block += kBlock) {
        if (!f(task, block, std::min(kBlock, pieces_.end(task) - block))) return;
      }
    });
  }

  bool fit(const int64_t* id, int64_t count) const { return ids_fit(id, count, edges_.num_nodes); }

  Word key(Word word) const { return word >> layout_.edge_bits; }

  // Buckets go to tasks in runs of about as many edges each.
  int64_t first_bucket(int64_t task) const {
    if (task == pieces_.tasks) return layout_.buckets();
    return std::lower_bound(start_.begin(), start_.end() - 1, pieces_.begin(task)) - start_.begin();
  }

  // Moves the words that each task left in a bucket together; says how many there are.
  int64_t close_gaps(int64_t bucket) {
    int64_t size = 0;
    for (int64_t task = 0; task < pieces_.tasks; ++task) {
      const int64_t begin = first_[task * layout_.buckets() + bucket],
                    end = next_[task * layout_.buckets() + bucket];
      std::copy(words_ + begin, words_ + end, words_ + start_[bucket] + size);
      size += end - begin;
    }
    return size;
  }

  const Parallel& parallel_;
  const Edges edges_;
  const View view_;
  const EdgeLayout layout_;
  Word* const words_;
  const Pieces pieces_;
  std::vector<int64_t> next_, first_;  // [tasks, buckets] where a task's words of a bucket end, and begin
  std::vector<int64_t> start_;         // [buckets + 1] where a bucket begins
  std::vector<int64_t> size_;          // [buckets] kept edges
  std::vector<int64_t> unique_;        // [buckets + 1] distinct edges before a bucket
};

// What a kernel finds where it asks for room, in scratch.
template <class Scratch>
struct FoundInScratch {
  const Scratch& scratch;
  int64_t *edges = nullptr, *representative = nullptr;
  int64_t num_edges = 0, num_clusters = 0;

  int64_t* new_edges(int64_t count) {
    num_edges = count;
    return edges = room<int64_t>(scratch, 2 * count);
  }
  int64_t* new_representative(int64_t count) {
    num_clusters = count;
    return representative = room<int64_t>(scratch, count);
  }

  // Whether all have room. slot: [num_slots], or null.
  bool pad(const Padded& out, int64_t* slot, int64_t num_slots) const {
    out.count[0] = num_clusters;
    out.count[1] = num_edges;
    const bool fits = num_edges <= out.num_edges && num_clusters <= out.num_clusters;
    const auto copy = [=](const int64_t* from, int64_t count, int64_t* to, int64_t size) {
      if (!fits) count = 0;
      std::copy_n(from, count, to);
      std::fill(to + count, to + size, -1);
    };
    copy(edges, num_edges, out.edges, out.num_edges);
    copy(edges + num_edges, num_edges, out.edges + out.num_edges, out.num_edges);
    copy(representative, num_clusters, out.representative, out.num_clusters);
    if (slot && !fits) std::fill_n(slot, num_slots, -1);
    return fits;
  }
};

// What distinct() gives: false if a node id is out of range or the view refuses an edge. found: makes room
// for the distinct edges once their number is known. slot: [edges.count], or null.
template <class Word, class Parallel, class View, class Found, class Scratch>
bool distinct_as(const Parallel& parallel, const Edges& edges, View view, const EdgeLayout& layout,
                 int64_t* slot, Found& found, const Scratch& scratch) {
  UniqueEdges<Parallel, View, Word> unique(parallel, edges, view, layout, room<Word>(scratch, edges.count));
  if (!unique.scatter(slot)) return false;
  const int64_t count = unique.sort(scratch.nested());
  int64_t* row = found.new_edges(count);
  unique.write(row, row + count, slot);
  return true;
}

// num_ids: renamed nodes lie in [0, num_ids).
template <class Parallel, class View, class Found, class Scratch>
bool distinct(const Parallel& parallel, const Edges& edges, View view, int64_t num_ids, int64_t* slot,
              Found& found, const Scratch& scratch) {
  const EdgeLayout layout(edges.count, num_ids, slot != nullptr);
  if (layout.word_bits() <= 32)
    return distinct_as<uint32_t>(parallel, edges, view, layout, slot, found, scratch);
  if (layout.word_bits() <= 64)
    return distinct_as<uint64_t>(parallel, edges, view, layout, slot, found, scratch);
  return distinct_as<unsigned __int128>(parallel, edges, view, layout, slot, found, scratch);
}

}  // namespace gpn::cpu
