// The dominant edge of every node, on the CPU. Edges that come in runs of ascending rows (as PyG stores them)
// are swept once, without atomics or scratch memory; any other order goes through the keys of
// core/dominance.h.
#pragma once

#include <vector>

#include "../core/atomic.h"
#include "blocks.h"
#include "parallel.h"

namespace gpn::cpu {

enum class Sweep { kDone, kBad, kUnsorted };

// The best edge so far of the row that is being read. Code 0: none yet.
template <class Code>
struct Run {
  int64_t row = -1;
  Code code = 0;
  int64_t kept = -1;
};

// One thread's piece of the edges, rows ascending. The run that was already open when the piece began is not
// this thread's to write: its part of it is left in `head` for join_runs.
template <class Score, class Keep>
class alignas(64) RunSweep {  // a cache line of its own
 public:
  RunSweep(const Edges& edges, const Score* scores, Keep keep, int64_t* kept)
      : edges_(edges), scores_(scores), keep_(keep), kept_(kept) {}

  Run<Code<Score>> head, tail;

  Sweep operator()(int64_t begin, int64_t end) {
    if (begin > 0) tail.row = edges_.row[begin - 1];
    in_head_ = begin > 0;
    Code<Score> codes[kBlock];
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t count = std::min(kBlock, end - block);
      const int64_t before =
          block > 0;  // the row before the block belongs to the check, so that pieces fit together
      if (!rows_ascend(edges_.row + block - before, count + before, edges_.num_nodes)) {
        return ids_fit(edges_.row + block, count, edges_.num_nodes) ? Sweep::kUnsorted : Sweep::kBad;
      }
      if (!ids_fit(edges_.col + block, count, edges_.num_nodes)) return Sweep::kBad;
      if (!encode(scores_ + block, count, codes)) return Sweep::kBad;
      int64_t i = in_head_ ? read_head(block, count, codes) : 0;
      while (i < count) i = read_stretch(block, i, std::min(i + kStretch, count), codes);
    }
    if (end == edges_.count) keep_none(tail.row + 1, edges_.num_nodes);
    return Sweep::kDone;
  }

 private:
  static constexpr int64_t kStretch = 64;

  // Stores are atomic because two threads write the same node where the rows do not ascend after all, which
  // neither may know; then all that was written is dropped.
  void keep_none(int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) atomic_store(kept_ + v, int64_t(-1));
  }

  int64_t read_head(int64_t block, int64_t count, const Code<Score>* codes) {
    const int64_t* row = edges_.row + block;
    const int64_t stop = std::upper_bound(row, row + count, tail.row) - row;
    raise(head, block, 0, stop, codes);
    in_head_ = stop == count;
    return stop;
  }

  bool raise(Run<Code<Score>>& run, int64_t block, int64_t begin, int64_t end, const Code<Score>* codes) {
    const Code<Score> best = highest(codes + begin, end - begin);
    if (best <= run.code) return false;
    run.code = best;
    run.kept = keep_(block + (std::find(codes + begin, codes + end, best) - codes));
    return true;
  }

  int64_t read_stretch(int64_t block, int64_t begin, int64_t end, const Code<Score>* codes) {
    const int64_t* row = edges_.row + block;
    if (row[end - 1] == tail.row) {  // dense rows: the whole stretch goes on with the open run
      if (raise(tail, block, begin, end, codes)) atomic_store(kept_ + tail.row, tail.kept);
      return end;
    }
    // Sparse rows: masks instead of branches, which would depend on where runs end and which score is higher
    // and so be guessed wrong about once a node. The price is that a node is written once an edge.
    int64_t run_row = tail.row;
    Code<Score> run_code = tail.code;
    int64_t run_kept = tail.kept;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = row[i];
      if (r > run_row + 1) [[unlikely]]
        keep_none(run_row + 1, r);
      const Code<Score> open =
          run_code & (Code<Score>(0) - Code<Score>(r == run_row));  // 0 as a new run starts
      const int64_t higher = -int64_t(codes[i] > open);
      run_code = codes[i] > open ? codes[i] : open;
      run_kept ^= (run_kept ^ keep_(block + i)) & higher;
      run_row = r;
      atomic_store(kept_ + r, run_kept);
    }
    tail = {run_row, run_code, run_kept};
    return end;
  }

  const Edges edges_;
  const Score* scores_;
  const Keep keep_;
  int64_t* kept_;
  bool in_head_ = false;
};

template <class Parallel, class Score, class Keep>
Sweep dominant_runs(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                    int64_t* kept) {
  const Pieces pieces = cut(parallel, edges.count);
  std::vector<RunSweep<Score, Keep>> sweeps(pieces.tasks, {edges, scores, keep, kept});
  std::vector<Sweep> outcome(pieces.tasks);
  parallel(pieces.tasks, [&](int64_t t) { outcome[t] = sweeps[t](pieces.begin(t), pieces.end(t)); });
  for (const Sweep stop : {Sweep::kBad, Sweep::kUnsorted}) {
    if (std::count(outcome.begin(), outcome.end(), stop)) return stop;
  }

  // Runs that cross pieces, in order: among equal codes the earlier edge stays.
  Run<Code<Score>> open = sweeps[0].tail;
  for (int64_t t = 1; t < pieces.tasks; ++t) {
    if (sweeps[t].head.code > open.code) {
      open = {open.row, sweeps[t].head.code, sweeps[t].head.kept};
      kept[open.row] = open.kept;
    }
    if (sweeps[t].tail.code != 0) open = sweeps[t].tail;
  }
  return Sweep::kDone;
}

// Runs f(block, count, codes) over all blocks of edges after they were checked.
template <class Parallel, class Score, class F>
Sweep for_each_block(const Parallel& parallel, const Edges& edges, const Score* scores, const F& f) {
  std::atomic<bool> bad = false;
  for_each_piece(parallel, edges.count, [&](int64_t begin, int64_t end) {
    Code<Score> codes[kBlock];
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t count = std::min(kBlock, end - block);
      if (!ids_fit(edges.row + block, count, edges.num_nodes) ||
          !ids_fit(edges.col + block, count, edges.num_nodes) || !encode(scores + block, count, codes)) {
        bad = true;
        return;
      }
      f(block, count, codes);
    }
  });
  return bad ? Sweep::kBad : Sweep::kDone;
}

// kept[v] = max(kept[v], value), where `shared` says whether other threads do the same.
inline void raise(uint64_t* key, uint64_t value, bool shared) {
  if (shared) {
    atomic_raise(key, value);
  } else {
    *key = std::max(*key, value);
  }
}

template <class Parallel, class Score, class Keep>
Sweep dominant_packed(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                      int64_t first_edge, int64_t* kept) {
  static_assert(sizeof(Code<Score>) == 4);
  uint64_t* keys = reinterpret_cast<uint64_t*>(kept);
  const bool shared = cut(parallel, edges.count).tasks > 1;
  for_each_piece(parallel, edges.num_nodes,
                 [&](int64_t begin, int64_t end) { std::fill(keys + begin, keys + end, 0); });
  const Sweep outcome =
      for_each_block(parallel, edges, scores, [&](int64_t block, int64_t count, const Code<Score>* codes) {
        const int64_t* row = edges.row + block;
        for (int64_t i = 0; i < count; ++i) prefetch(keys + row[i]);
        for (int64_t i = 0; i < count; ++i) {
          raise(keys + row[i], packed_key(codes[i], first_edge + block + i), shared);
        }
      });
  if (outcome != Sweep::kDone) return outcome;
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      if (v + 16 < end) prefetch(edges.col + int64_t(packed_edge(keys[v + 16]) - first_edge));
      kept[v] = keys[v] == 0 ? -1 : keep(packed_edge(keys[v]) - first_edge);
    }
  });
  return Sweep::kDone;
}

// `ids` is scratch for num_nodes edge ids.
template <class Parallel, class Score, class Keep>
Sweep dominant_wide(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                    int64_t first_edge, int64_t* kept, int64_t* ids) {
  uint64_t* best = reinterpret_cast<uint64_t*>(kept);
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    std::fill(best + begin, best + end, 0);
    std::fill(ids + begin, ids + end, kNoEdge);
  });
  const Sweep outcome =
      for_each_block(parallel, edges, scores, [&](int64_t block, int64_t count, const Code<Score>* codes) {
        const int64_t* row = edges.row + block;
        for (int64_t i = 0; i < count; ++i) prefetch(best + row[i]);
        for (int64_t i = 0; i < count; ++i) atomic_raise(best + row[i], uint64_t(codes[i]));
      });
  if (outcome != Sweep::kDone) return outcome;
  for_each_block(parallel, edges, scores, [&](int64_t block, int64_t count, const Code<Score>* codes) {
    const int64_t* row = edges.row + block;
    for (int64_t i = 0; i < count; ++i) prefetch(best + row[i]);
    for (int64_t i = 0; i < count; ++i) {
      if (best[row[i]] == codes[i]) atomic_lower(ids + row[i], first_edge + block + i);
    }
  });
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) kept[v] = ids[v] == kNoEdge ? -1 : keep(ids[v] - first_edge);
  });
  return Sweep::kDone;
}

// kept[v] = keep(dominant edge of v), -1 where v has none. kBad: an id out of range or a NaN; then kept holds
// nothing of use. Edges have the ids first_edge, first_edge + 1, ... `wide_scratch()` gives room for
// num_nodes ids, and is only called where the wide form is needed.
template <class Parallel, class Score, class Keep, class Scratch>
Sweep dominant(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep, Form form,
               int64_t first_edge, int64_t* kept, const Scratch& wide_scratch) {
  if (form == Form::kAutomatic) {
    const Sweep outcome = dominant_runs(parallel, edges, scores, keep, kept);
    if (outcome != Sweep::kUnsorted) return outcome;
  }
  if constexpr (sizeof(Code<Score>) == 4) {
    if (form != Form::kWide && first_edge + edges.count <= kPackedEdges) {
      return dominant_packed(parallel, edges, scores, keep, first_edge, kept);
    }
  }
  return dominant_wide(parallel, edges, scores, keep, first_edge, kept, wide_scratch());
}

}  // namespace gpn::cpu
