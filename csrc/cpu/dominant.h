// The dominant edge of every node, on the CPU. Edges that come in runs of ascending rows (as PyG stores them)
// are swept once, without atomics or scratch memory; any other order goes through the keys of
// core/dominance.h.
#pragma once

#include <vector>

#include "../core/atomic.h"
#include "../core/errors.h"
#include "blocks.h"
#include "parallel.h"

namespace gpn::cpu {

// Asks for the next block while this one is worked on: the hardware's own prefetching follows a stream only
// while it is read, and then starts anew.
template <class Score>
void prefetch_block(const Edges& edges, const Score* scores, int64_t begin, int64_t end) {
  constexpr int64_t kLine = 64;
  const int64_t stop = std::min(begin + kBlock, end);
  for (int64_t e = begin; e < stop; e += kLine / int64_t(sizeof(int64_t))) {
    prefetch_read(edges.row + e);
    prefetch_read(edges.col + e);
  }
  for (int64_t e = begin; e < stop; e += kLine / int64_t(sizeof(Score))) prefetch_read(scores + e);
}

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
template <class Score, class Keep, class Kept>
class alignas(64) RunSweep {  // a cache line of its own
 public:
  RunSweep(const Edges& edges, const Score* scores, Keep keep, Kept* kept)
      : edges_(edges), scores_(scores), keep_(keep), kept_(kept) {}

  Run<Code<Score>> head, tail;

  Sweep operator()(int64_t begin, int64_t end) {
    if (begin > 0) tail.row = edges_.row[begin - 1];
    in_head_ = begin > 0;
    Code<Score> codes[kBlock];
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t count = std::min(kBlock, end - block);
      prefetch_block(edges_, scores_, block + count, end);
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
    for (int64_t v = begin; v < end; ++v) atomic_store(kept_ + v, Kept(-1));
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
      if (raise(tail, block, begin, end, codes)) atomic_store(kept_ + tail.row, Kept(tail.kept));
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
      atomic_store(kept_ + r, Kept(run_kept));
    }
    tail = {run_row, run_code, run_kept};
    return end;
  }

  const Edges edges_;
  const Score* scores_;
  const Keep keep_;
  Kept* kept_;
  bool in_head_ = false;
};

template <class Parallel, class Score, class Keep, class Kept>
Sweep dominant_runs(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                    Kept* kept) {
  const Pieces pieces = cut(parallel, edges.count);
  std::vector<RunSweep<Score, Keep, Kept>> sweeps(pieces.tasks, {edges, scores, keep, kept});
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
      kept[open.row] = Kept(open.kept);
    }
    if (sweeps[t].tail.code != 0) open = sweeps[t].tail;
  }
  return Sweep::kDone;
}

// Runs f(task, block, count, codes) over all blocks of edges after they were checked. The blocks are small
// because they share the cache with what f looks up.
template <class Parallel, class Score, class F>
Sweep for_each_block(const Parallel& parallel, Pieces pieces, const Edges& edges, const Score* scores,
                     const F& f) {
  constexpr int64_t kSmallBlock = 64;
  std::atomic<bool> bad = false;
  parallel(pieces.tasks, [&](int64_t task) {
    Code<Score> codes[kSmallBlock];
    for (int64_t block = pieces.begin(task); block < pieces.end(task); block += kSmallBlock) {
      const int64_t count = std::min(kSmallBlock, pieces.end(task) - block);
      prefetch_block(edges, scores, block + count, pieces.end(task));
      if (!ids_fit(edges.row + block, count, edges.num_nodes) ||
          !ids_fit(edges.col + block, count, edges.num_nodes) || !encode(scores + block, count, codes)) {
        bad = true;
        return;
      }
      f(task, block, count, codes);
    }
  });
  return bad ? Sweep::kBad : Sweep::kDone;
}

// Up to this many nodes every thread keeps a table of its own, small enough for its cache. Shared keys would
// travel between the threads' caches all the time; beyond this size threads rarely meet at one.
constexpr int64_t kOwnTable = 8192;

template <class Parallel, class Score, class Keep, class Kept>
Sweep dominant_own(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep, Kept* kept) {
  const int64_t tasks = parallel.tasks(edges.count), num_nodes = edges.num_nodes;
  std::vector<Code<Score>> code(size_t(tasks * num_nodes), 0);
  std::vector<int64_t> edge(code.size());
  const Sweep outcome =
      for_each_block(parallel, {edges.count, tasks}, edges, scores,
                     [&](int64_t task, int64_t block, int64_t count, const Code<Score>* codes) {
                       const int64_t* row = edges.row + block;
                       Code<Score>* own_code = code.data() + task * num_nodes;
                       int64_t* own_edge = edge.data() + task * num_nodes;
                       for (int64_t i = 0; i < count; ++i) {
                         if (codes[i] > own_code[row[i]]) {
                           own_code[row[i]] = codes[i];
                           own_edge[row[i]] = block + i;
                         }
                       }
                     });
  if (outcome != Sweep::kDone) return outcome;
  for (int64_t v = 0; v < num_nodes; ++v) {
    int64_t best = v;  // in the table of the first task; later ones hold later edges and win only by score
    for (int64_t other = v; other < int64_t(code.size()); other += num_nodes) {
      if (code[other] > code[best]) best = other;
    }
    kept[v] = Kept(code[best] == 0 ? -1 : keep(edge[best]));
  }
  return Sweep::kDone;
}

template <class Parallel, class Score, class Keep, class Kept>
Sweep dominant_packed(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                      int64_t first_edge, uint64_t* keys, Kept* kept) {
  static_assert(sizeof(Code<Score>) == 4);
  const Pieces pieces = cut(parallel, edges.count);
  const bool shared = pieces.tasks > 1;
  for_each_piece(parallel, edges.num_nodes,
                 [&](int64_t begin, int64_t end) { std::fill(keys + begin, keys + end, 0); });
  const Sweep outcome = for_each_block(
      parallel, pieces, edges, scores, [&](int64_t, int64_t block, int64_t count, const Code<Score>* codes) {
        const int64_t* row = edges.row + block;
        const auto key = [&](int64_t i) { return packed_key(codes[i], first_edge + block + i); };
        for (int64_t i = 0; i < count; ++i) prefetch(keys + row[i]);
        if (shared) {
          for (int64_t i = 0; i < count; ++i) atomic_raise(keys + row[i], key(i));
        } else {
          for (int64_t i = 0; i < count; ++i) keys[row[i]] = std::max(keys[row[i]], key(i));
        }
      });
  if (outcome != Sweep::kDone) return outcome;
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      if (v + kAhead < end) prefetch_read(edges.col + int64_t(packed_edge(keys[v + kAhead]) - first_edge));
      kept[v] = Kept(keys[v] == 0 ? -1 : keep(packed_edge(keys[v]) - first_edge));
    }
  });
  return Sweep::kDone;
}

template <class Parallel, class Score, class Keep, class Kept>
Sweep dominant_wide(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                    int64_t first_edge, uint64_t* best, int64_t* ids, Kept* kept) {
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    std::fill(best + begin, best + end, 0);
    std::fill(ids + begin, ids + end, kNoEdge);
  });
  const Pieces pieces = cut(parallel, edges.count);
  const Sweep outcome = for_each_block(parallel, pieces, edges, scores,
                                       [&](int64_t, int64_t block, int64_t count, const Code<Score>* codes) {
                                         const int64_t* row = edges.row + block;
                                         for (int64_t i = 0; i < count; ++i) prefetch(best + row[i]);
                                         for (int64_t i = 0; i < count; ++i)
                                           atomic_raise(best + row[i], uint64_t(codes[i]));
                                       });
  if (outcome != Sweep::kDone) return outcome;
  for_each_block(parallel, pieces, edges, scores,
                 [&](int64_t, int64_t block, int64_t count, const Code<Score>* codes) {
                   const int64_t* row = edges.row + block;
                   for (int64_t i = 0; i < count; ++i) prefetch(best + row[i]);
                   for (int64_t i = 0; i < count; ++i) {
                     if (best[row[i]] == codes[i]) atomic_lower(ids + row[i], first_edge + block + i);
                   }
                 });
  for_each_piece(parallel, edges.num_nodes, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) kept[v] = Kept(ids[v] == kNoEdge ? -1 : keep(ids[v] - first_edge));
  });
  return Sweep::kDone;
}

// Edges in any order: kept[v] = keep(dominant edge of v), -1 where v has none. Edges have the
// ids first_edge, first_edge + 1, ... `keys` is scratch for num_nodes keys, which may be the memory of kept
// if that is 64 bits wide. `wide_scratch()` gives room for num_nodes ids, and is only called where the wide
// form is needed.
template <class Parallel, class Score, class Keep, class Kept, class Scratch>
Sweep dominant_unsorted(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep,
                        Form form, int64_t first_edge, uint64_t* keys, Kept* kept,
                        const Scratch& wide_scratch) {
  if (form == Form::kAutomatic && edges.num_nodes <= kOwnTable) {
    return dominant_own(parallel, edges, scores, keep, kept);
  }
  if constexpr (sizeof(Code<Score>) == 4) {
    if (form != Form::kWide && first_edge + edges.count <= kPackedEdges) {
      return dominant_packed(parallel, edges, scores, keep, first_edge, keys, kept);
    }
  }
  return dominant_wide(parallel, edges, scores, keep, first_edge, keys, wide_scratch(), kept);
}

// The same for any order, by runs if the rows ascend and the form is left open. kBad: an id out of range or a
// NaN; then kept holds nothing of use.
template <class Parallel, class Score, class Keep, class Scratch>
Sweep dominant(const Parallel& parallel, const Edges& edges, const Score* scores, Keep keep, Form form,
               int64_t first_edge, int64_t* kept, const Scratch& wide_scratch) {
  if (form == Form::kAutomatic) {
    const Sweep outcome = dominant_runs(parallel, edges, scores, keep, kept);
    if (outcome != Sweep::kUnsorted) return outcome;
  }
  return dominant_unsorted(parallel, edges, scores, keep, form, first_edge, reinterpret_cast<uint64_t*>(kept),
                           kept, wide_scratch);
}

template <class Parallel, class Score, class Scratch>
void dominant_kernel(const Parallel& parallel, const Edges& edges, const Score* scores, Form form,
                     int64_t first_edge, int64_t* edge, const Scratch& scratch) {
  const auto wide_scratch = [&] { return room<int64_t>(scratch, edges.num_nodes); };
  if (dominant(parallel, edges, scores, KeepEdge{first_edge}, form, first_edge, edge, wide_scratch) !=
      Sweep::kDone) {
    report_bad_values(edges, scores);
  }
}

}  // namespace gpn::cpu
