"""Planted bugs: proof that the C++ tests catch what they are there to catch.

For each bug (tests/planting.py) the test that must notice it is built and run, and has to fail in the way
that the table says.

    python tests/cpp/mutants.py                # all
    python tests/cpp/mutants.py --quick        # the subset of .ci/run
    python tests/cpp/mutants.py hook-no-order  # some, by name
"""

import functools
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from planting import ROOT, first_problem, main, plant, run

SCRATCH = ROOT / "build" / "mutants"
CXX = os.environ.get("CXX", "c++")
# As in a release build: checks that vanish with NDEBUG have to be missed by a test.
FLAGS = ["-std=c++20", "-O1", "-DNDEBUG", "-DGPN_OPS_TWO_DTYPES", "-pthread"]
# What counts accesses is compiled, and not linked, for ThreadSanitizer: see CMakeLists.txt.
COUNTED = ["-fsanitize=thread", "-U__SANITIZE_THREAD__", "-O2"]
COUNTED += ["-fno-tree-vectorize", "-fno-tree-loop-distribute-patterns"]
SANITIZER = {"address": "address", "race": "thread", "undefined": "undefined"}

# How a bug shows: what the failing test prints.
SIGNS = {
    "result": r"failed: |gpn: CUDA error: |emulation: ",  # a check, or a launch that the emulation gave up
    "address": r"AddressSanitizer",
    "race": r"ThreadSanitizer: data race",
    "undefined": r"runtime error: ",
    "compiler": r"error: ",
}


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str
    shows: str = "result"
    quick: bool = False
    more: tuple[tuple[str, str], ...] = field(default=())  # further changes of the same file


PARSE = "test_cuda_parse"
POOLING = "test_cuda_pooling"
SCORER = "test_cuda_scorer"
RESIDUAL = "test_residual"
SCHEDULES = "test_schedules"
CORE = "test_core"
EMULATION = "test_emulation"
CPU_POOLING = "test_pooling"
MEMORY = "test_memory"
COUNTS = "test_counts"

CAS = """  return AtomicRef<T>(*address).compare_exchange_strong(expected, desired, memory_order_relaxed,
                                                        memory_order_relaxed);"""
CAS_IN_TWO_STEPS = """  if (atomic_load(address) != expected) return false;
  atomic_store(address, desired);
  return true;"""
RAISE = "AtomicRef<T>(*address).fetch_max(value, memory_order_relaxed);"
LOWER = "AtomicRef<T>(*address).fetch_min(value, memory_order_relaxed);"
ASSERT_FITS = """  if (!all_fit)
    __assert_fail("edge_index: node ids from 0 to num_nodes - 1", __FILE__, __LINE__, "gpn::cuda");"""
FLIP = "((bits & 0x7fffffffu) ^ sign) - sign"
NODES = "v < num_nodes; v += thread_count()) "

MUTANTS = [
    # ------------------------------------------------------------------------------------------- atomics
    Mutant(
        "cas-as-load-and-store",
        "csrc/core/atomic.h",
        CAS,
        CAS_IN_TWO_STEPS,
        PARSE,
        quick=True,
    ),
    Mutant(
        "cas-plain",
        "csrc/core/atomic.h",
        CAS,
        "  if (*address != expected) return false;\n  *address = desired;\n  return true;",
        PARSE,
        "race",
    ),
    Mutant(
        "cas-on-the-cpu",
        "csrc/core/atomic.h",
        CAS,
        CAS_IN_TWO_STEPS,
        SCHEDULES,
    ),
    Mutant("max-as-load-and-store", "csrc/core/atomic.h", RAISE, "atomic_store(address, value);", PARSE),
    Mutant("max-plain", "csrc/core/atomic.h", RAISE, "*address = value;", PARSE, "race"),
    Mutant("min-as-load-and-store", "csrc/core/atomic.h", LOWER, "atomic_store(address, value);", PARSE),
    Mutant("min-plain", "csrc/core/atomic.h", LOWER, "*address = value;", PARSE, "race"),
    # ------------------------------------------------------------------------------------- order of scores
    Mutant(
        "tie-to-the-highest-id",
        "csrc/core/dominance.h",
        "uint64_t(code) << 32 | uint32_t(~edge);",
        "uint64_t(code) << 32 | uint32_t(edge);",
        PARSE,
        quick=True,
        more=(("return uint32_t(~key);", "return uint32_t(key);"),),
    ),
    Mutant("negative-scores-upside-down", "csrc/core/dominance.h", FLIP, "(bits & 0x7fffffffu)", PARSE),
    Mutant(
        "negative-doubles-upside-down",
        "csrc/core/dominance.h",
        "((bits & 0x7fffffffffffffffu) ^ sign) - sign",
        "(bits & 0x7fffffffffffffffu)",
        PARSE,
    ),
    Mutant("zeros-differ", "csrc/core/dominance.h", FLIP, "((bits & 0x7fffffffu) ^ sign)", PARSE),
    Mutant(
        "zeros-differ-in-double",
        "csrc/core/dominance.h",
        "((bits & 0x7fffffffffffffffu) ^ sign) - sign",
        "((bits & 0x7fffffffffffffffu) ^ sign)",
        PARSE,
    ),
    Mutant(
        "nan-above-everything",
        "csrc/core/dominance.h",
        "return bits << 1 > 0xff000000u ? kNanCode : code;",
        "return code;",
        PARSE,
    ),
    Mutant(
        "nan-is-no-edge",
        "csrc/core/dominance.h",
        "constexpr uint32_t kNanCode = 1;",
        "constexpr uint32_t kNanCode = 0;",
        CORE,
    ),
    Mutant(
        "lowest-key-is-no-edge",
        "csrc/core/dominance.h",
        "constexpr uint32_t kNanCode = 1;",
        "constexpr uint32_t kNanCode = 0;",
        PARSE,
    ),
    Mutant(
        "infinity-is-nan",
        "csrc/core/dominance.h",
        "bits << 1 > 0xff000000u",
        "bits << 1 >= 0xff000000u",
        CORE,
    ),
    # ------------------------------------------------------------------------------------------ union-find
    Mutant(
        "hook-no-order",
        "csrc/core/union_find.h",
        "    if (above_u < above_v) {",
        "    if (above_u < above_v && false) {",
        PARSE,
        quick=True,
    ),
    Mutant(
        "hook-gives-up",
        "csrc/core/union_find.h",
        "    above_u = atomic_load(parent + u);\n  }",
        "    else return;\n    above_u = atomic_load(parent + u);\n  }",
        PARSE,
    ),
    Mutant(
        "hook-forgets-the-former-parent",
        "csrc/core/union_find.h",
        "      if (above_u == u) return;\n",
        "      return;\n",
        PARSE,
    ),
    Mutant(
        "settle-writes-plain",
        "csrc/core/union_find.h",
        "  atomic_store(parent + v, mark);\n  return mark;",
        "  parent[v] = mark;\n  return mark;",
        PARSE,
        "race",
    ),
    Mutant(
        "settle-writes-what-others-read",
        "csrc/core/union_find.h",
        "    atomic_store(parent + v, mark);\n    mark",
        "    atomic_store(parent + mark, v);\n    mark",
        PARSE,
    ),
    # ------------------------------------------------------------------------------------ the CUDA kernels
    Mutant(
        "lanes-leave-before-shuffle",
        "csrc/cuda/dominant.cuh",
        "for (int64_t first = thread_index() - lane; first < edges.count;",
        "for (int64_t first = thread_index() - lane; first + lane < edges.count;",
        PARSE,
        quick=True,
    ),
    Mutant(
        "runs-mixed-up",
        "csrc/cuda/dominant.cuh",
        "lane + offset < kWarp && other_row == row && other_key > key",
        "lane + offset < kWarp && other_key > key",
        PARSE,
    ),
    Mutant(
        "run-at-lane-0-forgotten",
        "csrc/cuda/dominant.cuh",
        "(lane == 0 || row_before != row)",
        "row_before != row",
        PARSE,
    ),
    Mutant(
        "short-shuffle-loop",
        "csrc/cuda/dominant.cuh",
        "offset < kWarp; offset *= 2",
        "offset < kWarp / 2; offset *= 2",
        PARSE,
    ),
    Mutant(
        "short-reduction",
        "csrc/cuda/largest.cuh",
        "for (int offset = kWarp / 2;",
        "for (int offset = kWarp / 4;",
        PARSE,
    ),
    Mutant(
        "row-unchecked",
        "csrc/cuda/dominant.cuh",
        "fits(row, edges.num_nodes) && fits",
        "fits",
        PARSE,
        "address",
        quick=True,
    ),
    Mutant(
        "column-unchecked",
        "csrc/cuda/components.cuh",
        "in_range(row, edges.num_nodes) && in_range(col, edges.num_nodes)",
        "in_range(row, edges.num_nodes)",
        PARSE,
        "address",
    ),
    Mutant(
        "bound-off-by-one",
        "csrc/cuda/launch.cuh",
        "uint64_t(id) < uint64_t(num_nodes)",
        "uint64_t(id) <= uint64_t(num_nodes)",
        PARSE,
        "address",
    ),
    Mutant(
        "loop-off-by-one",
        "csrc/cuda/components.cuh",
        NODES + "parent[v] = Node(v);",
        NODES.replace("<", "<=") + "parent[v] = Node(v);",
        PARSE,
        "address",
    ),
    Mutant(
        "check-vanishes-in-release",
        "csrc/cuda/launch.cuh",
        ASSERT_FITS,
        "  assert(all_fit);\n  (void)all_fit;",
        PARSE,
        quick=True,
    ),
    Mutant(
        "keys-not-cleared",
        "csrc/cuda/dominant.cuh",
        "launch(fill<uint64_t>, edges.num_nodes, keys, edges.num_nodes, 0);",
        "launch(fill<uint64_t>, edges.num_nodes, keys, edges.num_nodes, 1);",
        PARSE,
    ),
    Mutant(
        "packed-one-id-too-far",
        "csrc/cuda/dominant.cuh",
        "first_edge + edges.count <= kPackedEdges",
        "first_edge + edges.count <= kPackedEdges + 1",
        PARSE,
    ),
    Mutant(
        "wide-id-cut-to-32-bits",
        "csrc/cuda/dominant.cuh",
        "atomic_lower(ids + row, first_edge + edge)",
        "atomic_lower(ids + row, int64_t(uint32_t(first_edge + edge)))",
        PARSE,
    ),
    Mutant(
        "grid-stride-too-long",
        "csrc/cuda/components.cuh",
        "edge < edges.count; edge += thread_count()",
        "edge < edges.count; edge += 2 * thread_count()",
        PARSE,
    ),
    Mutant(
        "choices-of-node-0-skipped",
        "csrc/cuda/parse.cuh",
        "if (neighbour >= 0) hook",
        "if (neighbour > 0) hook",
        PARSE,
    ),
    Mutant(
        "storage-too-small",
        "csrc/cuda/scan.cuh",
        "void* storage = scratch(int64_t(bytes));",
        "void* storage = scratch(int64_t(bytes) / 2);",
        PARSE,
        "address",
    ),
    # --------------------------------------------------------------------------------------------- dropout
    Mutant(
        "dropout-alike-in-all-tiles",
        "csrc/cuda/dropout.cuh",
        "uint64_t(first + i)",
        "uint64_t(i)",
        POOLING,
    ),
    Mutant(
        "dropout-by-one-lane",
        "csrc/cuda/dropout.cuh",
        "int64_t(place % kLanes)",
        "int64_t(place % 2)",
        POOLING,
    ),
    Mutant(
        "dropout-blocks-overlap",
        "csrc/cpu/dropout.h",
        "kDropoutBlock - skip",
        "kDropoutBlock",
        CPU_POOLING,
        "address",
    ),
    Mutant(
        "dropout-skips-no-lane",
        "csrc/cpu/dropout.h",
        "bits[size_t(skip + i)]",
        "bits[size_t(i)]",
        CPU_POOLING,
    ),
    # ------------------------------------------------------------------------------------- pooling on CUDA
    Mutant(
        "run-misses-its-last-item",
        "csrc/cuda/reduce.cuh",
        "int64_t(runs.begin[owner + 1]) - begin}",
        "int64_t(runs.begin[owner + 1]) - begin - (owner + 1 == runs.num_owners)}",
        POOLING,
        quick=True,
    ),
    Mutant(
        "begin-of-the-owner-below",
        "csrc/cuda/reduce.cuh",
        "owner[middle] < Index(o)",
        "owner[middle] <= Index(o)",
        POOLING,
    ),
    Mutant(
        "last-begin-missing",
        "csrc/cuda/reduce.cuh",
        "o <= num_owners; o +=",
        "o < num_owners; o +=",
        POOLING,
        "address",
    ),
    Mutant(
        "piece-of-one-too-many",
        "csrc/cuda/reduce.cuh",
        "j + size < run.length ? j + size : run.length",
        "j + size < run.length ? j + size + 1 : run.length",
        POOLING,
    ),
    Mutant(
        "piece-rounds-down",
        "csrc/cuda/reduce.cuh",
        "((first - run.begin + size - 1) >> levels.bits)",
        "((first - run.begin) >> levels.bits)",
        POOLING,
    ),
    Mutant(
        "first-and-last-piece-meet",
        "csrc/cuda/reduce.cuh",
        "(2 * (run.begin + j) + (j == 0))",
        "(2 * (run.begin + j))",
        POOLING,
        quick=True,
    ),
    Mutant(
        "pieces-counted-from-the-list",
        "csrc/cuda/reduce.cuh",
        "starts ? 0 : ((first - run.begin + size - 1) >> levels.bits) << levels.bits",
        "starts ? 0 : first - run.begin",
        POOLING,
    ),
    Mutant(
        "piece-past-the-run",
        "csrc/cuda/reduce.cuh",
        "    if (j >= run.length) continue;\n",
        "",
        POOLING,
        "address",
    ),
    Mutant(
        "tile-of-weights-lost",
        "csrc/cuda/pair_dot.cuh",
        "begin + tile < rows ? begin + tile : rows",
        "begin + tile < rows ? begin + tile - 1 : rows",
        POOLING,
    ),
    Mutant(
        "mean-of-one-more",
        "csrc/cuda/reduce.cuh",
        "sum / Sum<T>(terms)",
        "sum / Sum<T>(terms + 1)",
        POOLING,
    ),
    Mutant(
        "one-sort-bit-too-few",
        "csrc/cuda/reduce.cuh",
        "int64_t(1) << bits <= num_owners",
        "int64_t(1) << bits < num_owners",
        POOLING,
    ),
    Mutant(
        "sizes-counted-plain",
        "csrc/cuda/reduce.cuh",
        "AtomicRef<int64_t>(sizes[c]).fetch_add(1, memory_order_relaxed);",
        "++sizes[c];",
        POOLING,
        "race",
    ),
    Mutant(
        "gradient-to-the-last-maximum",
        "csrc/cuda/reduce.cuh",
        "return b < a ? b : a; }",
        "return b > a ? b : a; }",
        POOLING,
    ),
    Mutant(
        "cluster-bound-off-by-one",
        "csrc/cuda/reduce.cuh",
        "id >= -1 && id < num_clusters",
        "id >= -1 && id <= num_clusters",
        POOLING,
    ),
    Mutant(
        "dropped-edges-counted",
        "csrc/cuda/unique_edges.cuh",
        "key[i] >= first_kept && (i == 0",
        "(i == 0",
        POOLING,
    ),
    Mutant(
        "edges-without-room",
        "csrc/cuda/unique_edges.cuh",
        "const bool is_edge = all_fit && i < num_edges;",
        "const bool is_edge = i < num_edges;",
        POOLING,
    ),
    Mutant(
        "slots-without-room",
        "csrc/cuda/unique_edges.cuh",
        "  if (all_fit) return;\n",
        "  return;\n",
        POOLING,
    ),
    Mutant(
        "clusters-counted-one-short",
        "csrc/cuda/unique_edges.cuh",
        "raise_from_warp(most + 1, counts);",
        "raise_from_warp(most, counts);",
        POOLING,
        quick=True,
    ),
    Mutant(
        "gaps-between-clusters-overlooked",
        "csrc/cuda/unique_edges.cuh",
        "if (node == clusters.num_nodes) {",
        "if (node == clusters.num_nodes + 1) {",
        POOLING,
    ),
    Mutant(
        "inner-edges-by-their-place",
        "csrc/cuda/unique_edges.cuh",
        "inside ? uint32_t(edge_id[i])",
        "inside ? uint32_t(i)",
        POOLING,
    ),
    Mutant(
        "edges-of-no-cluster-summed",
        "csrc/cuda/reduce.cuh",
        "runs.owner[item] >= Index(runs.num_owners)",
        "runs.owner[item] == Index(runs.num_owners)",
        POOLING,
        "address",
    ),
    Mutant(
        "inner-edges-begin-one-late",
        "csrc/cuda/unique_edges.cuh",
        "inner.cluster[middle] < uint32_t(c);",
        "inner.cluster[middle] <= uint32_t(c);",
        POOLING,
    ),
    Mutant(
        "mask-of-edges-that-take-no-part",
        "csrc/cuda/mask.cuh",
        "if (takes_part && !takes_part[edge]) return -1;",
        "if (takes_part && !takes_part[0]) return -1;",
        POOLING,
    ),
    Mutant(
        "mask-of-edges-that-take-no-part-on-the-cpu",
        "csrc/cpu/mask.h",
        "f(edge, takes_part[edge] ? c : -1);",
        "f(edge, takes_part[0] ? c : -1);",
        CPU_POOLING,
    ),
    Mutant(
        "edges-that-take-no-part",
        "csrc/cuda/coarsen.cuh",
        "if (takes_part && !takes_part[edge])",
        "if (takes_part && !takes_part[row])",
        POOLING,
    ),
    Mutant(
        "edges-that-take-no-part-are-inside",
        "csrc/cuda/coarsen.cuh",
        "!takes_part[edge]) return keys.in_nothing();",
        "!takes_part[edge]) return keys.inside(cluster[row]);",
        POOLING,
    ),
    Mutant(
        "inner-edges-that-take-no-part-on-the-cpu",
        "csrc/cpu/coarsen.h",
        "(!takes_part || takes_part[e]) && cluster",
        "cluster",
        CPU_POOLING,
    ),
    Mutant(
        "inner-edges-out-of-order-on-the-cpu",
        "csrc/cpu/coarsen.h",
        "next[c + 1] += next[c];",
        "next[c + 1] += next[0];",
        CPU_POOLING,
    ),
    Mutant(
        "room-of-pairs-ends-early",
        "csrc/cuda/sorted_pairs.cuh",
        "so_far <= num_pairs &&",
        "so_far < num_pairs &&",
        POOLING,
    ),
    Mutant(
        "mark-of-dropped-edges-not-sorted",
        "csrc/cuda/unique_edges.cuh",
        "return 2 * id_bits + 1;",
        "return 2 * id_bits;",
        POOLING,
    ),
    Mutant(
        "pairs-with-direction",
        "csrc/cuda/undirected.cuh",
        "return row < col ? keys.key(row, col) : keys.key(col, row);",
        "return keys.key(row, col);",
        POOLING,
    ),
    Mutant(
        "representative-plain",
        "csrc/cuda/unique_edges.cuh",
        "atomic_lower(clusters.representative + c, v);",
        "clusters.representative[c] = v;",
        POOLING,
        "race",
    ),
    Mutant(
        "pair-stride-of-threads",
        "csrc/cuda/pair_dot.cuh",
        "begin += thread_count() / kWarp * stretch",
        "begin += thread_count() * stretch",
        POOLING,
    ),
    Mutant(
        "row-of-another-node-held",
        "csrc/cuda/pair_dot.cuh",
        "if (i != holds) {",
        "if (holds < 0) {",
        POOLING,
    ),
    Mutant(
        "columns-that-no-lane-holds",
        "csrc/cuda/pair_dot.cuh",
        "int64_t k = lane + kHeldColumns * kWarp; k < width",
        "int64_t k = lane + kHeldColumns * kWarp; k + kWarp < width",
        POOLING,
    ),
    Mutant(
        "idle-lanes-write",
        "csrc/cuda/pair_dot.cuh",
        "if (lane < count) out[begin + lane] = T(own);",
        "out[begin + lane] = T(own);",
        POOLING,
        "address",
    ),
    Mutant(
        "node-of-a-thread-lost",
        "csrc/cuda/pair_dot.cuh",
        "i < begin + kNodesOfThread &&",
        "i < begin + kNodesOfThread - 1 &&",
        POOLING,
    ),
    Mutant(
        "weight-counts-both-ends",
        "csrc/cuda/pair_dot.cuh",
        "partial[at] = total / 2;",
        "partial[at] = total;",
        POOLING,
    ),
    Mutant(
        "lift-leaves-rows-in-no-cluster",
        "csrc/cuda/lift.cuh",
        "out[at] = usable ? x[c * width + at % width] : T(0);",
        "if (usable) out[at] = x[c * width + at % width];",
        POOLING,
        quick=True,
    ),
    Mutant(
        "tiles-in-half-precision",
        "csrc/cuda/pair_dot.cuh",
        "partial[at] = total / 2;",
        "partial[at] = Sum<T>(T(total)) / 2;",
        POOLING,
    ),
    # ------------------------------------------------------------------------------------------ edge scorer
    Mutant(
        "scorer-without-its-last-pairs",
        "csrc/cuda/edge_logits.cuh",
        "(pairs.count + kRows<W> - 1) / kRows<W> * kWarp",
        "pairs.count / kRows<W> * kWarp",
        SCORER,
    ),
    Mutant(
        "norm-before-all-products",
        "csrc/cuda/edge_logits.cuh",
        """lane, hidden);
      __syncwarp();""",
        """lane, hidden);""",
        SCORER,
        "race",
    ),
    Mutant(
        "padding-as-it-was",
        "csrc/cuda/edge_logits.cuh",
        "for (int64_t k = lane; k < stride; k += kWarp) {\n    row[k]",
        "for (int64_t k = lane; k < width; k += kWarp) {\n    row[k]",
        SCORER,
    ),
    Mutant(
        "gradient-through-what-relu-dropped",
        "csrc/cuda/edge_logits.cuh",
        "return y > 0 ? (grad_z",
        "return y > -0.1 ? (grad_z",
        SCORER,
        quick=True,
    ),
    Mutant(
        "draws-of-another-layer",
        "csrc/cuda/edge_logits.cuh",
        "normalise_rows_backward(layers, layer, activation, place_in(layer)",
        "normalise_rows_backward(layers, layer, activation, place_in(0)",
        SCORER,
    ),
    Mutant(
        "draws-by-the-place-in-the-order",
        "csrc/cuda/edge_logits.cuh",
        "Scorer<W>::place(layer, items[first_row + r], width)",
        "Scorer<W>::place(layer, own_step + r, width)",
        SCORER,
    ),
    Mutant(
        "gradient-to-the-node-itself",
        "csrc/cuda/edge_logits.cuh",
        "h + (by_second ? pairs.first[p] : pairs.second[p]) * width",
        "h + (by_second ? pairs.second[p] : pairs.first[p]) * width",
        SCORER,
    ),
    Mutant(
        "first-node-of-a-chunk-as-if-whole",
        "csrc/cuda/edge_logits.cuh",
        "            if (first) {\n",
        "            if (false && first) {\n",
        SCORER,
    ),
    Mutant(
        "last-node-of-a-chunk-forgotten",
        "csrc/cuda/edge_logits.cuh",
        "if (is_first) gathered.open[(2 * chunk + 1) * width + k] = 0;",
        "gathered.open[(2 * chunk + 1) * width + k] = 0;",
        SCORER,
    ),
    Mutant(
        "second-part-of-a-chunk-left-as-it-was",
        "csrc/cuda/edge_logits.cuh",
        "if (is_first) gathered.open[(2 * chunk + 1) * width + k] = 0;",
        "",
        SCORER,
    ),
    Mutant(
        "outer-products-before-all-rows",
        "csrc/cuda/edge_logits.cuh",
        "          __syncthreads();\n          W* total",
        "          W* total",
        SCORER,
        "race",
    ),
    Mutant(
        "rows-overwritten-under-outer-products",
        "csrc/cuda/edge_logits.cuh",
        "behind the last layer\n          }\n          __syncthreads();",
        "behind the last layer\n          }",
        SCORER,
        "race",
    ),
    Mutant(
        "next-rows-before-all-are-added",
        "csrc/cuda/edge_logits.cuh",
        "gather(memory.input(0), count, owners, 1);\n        __syncthreads();",
        "gather(memory.input(0), count, owners, 1);",
        SCORER,
        "race",
    ),
    Mutant(
        "pairs-of-two-nodes-as-of-one",
        "csrc/cuda/edge_logits.cuh",
        "to < count && owners[to] == owners[from];",
        "to < count;",
        SCORER,
        quick=True,
    ),
    Mutant(
        "gradient-of-weights-without-the-node",
        "csrc/cuda/edge_logits.cuh",
        "value.value[i] += own[half].value[i] * product.value[i];",
        "value.value[i] += product.value[i];",
        SCORER,
    ),
    Mutant(
        "one-part-of-a-node-not-gathered",
        "csrc/cuda/edge_logits.cuh",
        "gather(memory.parts(), parts, owners + from, 0);",
        "gather(memory.parts(), parts - (parts > 1), owners + from, 0);",
        SCORER,
    ),
    Mutant(
        "parts-of-a-node-before-they-are-there",
        "csrc/cuda/edge_logits.cuh",
        "__syncthreads();\n          gather(memory.parts()",
        "gather(memory.parts()",
        SCORER,
        "race",
    ),
    Mutant(
        "parts-of-the-next-node-over-those-of-the-last",
        "csrc/cuda/edge_logits.cuh",
        "gather(memory.parts(), parts, owners + from, 0);\n          __syncthreads();",
        "gather(memory.parts(), parts, owners + from, 0);",
        SCORER,
        "race",
    ),
    Mutant(
        "one-block-not-added",
        "csrc/cuda/mlp.cuh",
        "for (int64_t block = 0; block < blocks; ++block)",
        "for (int64_t block = 0; block < blocks - (blocks > 1); ++block)",
        SCORER,
    ),
    Mutant(
        "half-of-a-gradient-of-weights-twice",
        "csrc/cuda/mlp.cuh",
        "load(left_row + side * (stride / 2));",
        "load(left_row);",
        SCORER,
        quick=True,
    ),
    Mutant(
        "pairs-that-do-not-exist-have-owners",
        "csrc/cuda/edge_logits.cuh",
        "!pair_in_range(pairs, p) ? 2 * pairs.num_nodes",
        "!pair_in_range(pairs, p) ? 0",
        SCORER,
        "address",
    ),
    # ---------------------------------------------------------------------------------------------- DeepSets
    Mutant(
        "block-without-its-row",
        "csrc/cuda/residual.cuh",
        "total[k] += x[k];",
        "total[k] += 0 * x[k];",
        RESIDUAL,
    ),
    Mutant(
        "gradient-past-the-mlp-forgotten",
        "csrc/cuda/residual.cuh",
        "T(product[at] + total[at])",
        "T(product[at])",
        RESIDUAL,
        quick=True,
    ),
    Mutant(
        "block-draws-by-the-place-in-the-order",
        "csrc/cuda/residual.cuh",
        "row < 0 ? 0 : row, width),\n                            width, lane, to);",
        "begin + step + own + r, width), width, lane, to);",
        RESIDUAL,
    ),
    Mutant(
        "scale-of-kept-forgotten",
        "csrc/cuda/residual.cuh",
        "product[at] * scale : W(0)",
        "product[at] : W(0)",
        RESIDUAL,
    ),
    Mutant(
        "first-cluster-of-a-chunk-as-if-whole",
        "csrc/cuda/residual.cuh",
        "            if (first) {\n",
        "            if (false && first) {\n",
        RESIDUAL,
    ),
    Mutant(
        "second-part-of-a-chunk-of-rows-left-as-it-was",
        "csrc/cuda/residual.cuh",
        "if (is_first) open.sums[(2 * chunk + 1) * width + k] = 0;",
        "",
        RESIDUAL,
    ),
    Mutant(
        "clusters-without-rows-left-as-they-were",
        "csrc/cuda/residual.cuh",
        "if (begin[owner] == begin[owner + 1]) out[at] = T(0);",
        "",
        RESIDUAL,
    ),
    Mutant(
        "gradient-of-a-cluster-that-does-not-exist",
        "csrc/cuda/residual.cuh",
        "if (!assert_cluster_or_none(from, segments.num_clusters)) from = -1;",
        "assert_cluster_or_none(from, segments.num_clusters);",
        RESIDUAL,
        "address",
    ),
    Mutant(
        "norms-gradients-of-one-warp",
        "csrc/cuda/residual.cuh",
        "other < warps; ++other",
        "other < 1; ++other",
        RESIDUAL,
    ),
    Mutant(
        "clusters-before-all-rows",
        "csrc/cuda/residual.cuh",
        "      __syncthreads();\n      // Columns are independent.",
        "      // Columns are independent.",
        RESIDUAL,
        "race",
    ),
    Mutant(
        "next-rows-before-clusters-have-these",
        "csrc/cuda/residual.cuh",
        "owner = owners[used - 1];\n      __syncthreads();",
        "owner = owners[used - 1];",
        RESIDUAL,
        "race",
    ),
    Mutant(
        "weights-gradients-before-all-rows",
        "csrc/cuda/residual.cuh",
        "      __syncthreads();\n      W* to = partial",
        "      W* to = partial",
        RESIDUAL,
        "race",
    ),
    Mutant(
        "rows-overwritten-under-weights-gradients",
        "csrc/cuda/residual.cuh",
        "      __syncthreads();\n      multiply_rows(g",
        "      multiply_rows(g",
        RESIDUAL,
        "race",
    ),
    Mutant(
        "norm-without-bias",
        "csrc/cuda/mlp.cuh",
        "x[k] += bias[k];",
        "x[k] += 0 * bias[k];",
        RESIDUAL,
    ),
    Mutant(
        "chunks-of-rows-share-their-sums",
        "csrc/cpu/residual.h",
        "partial + row / kRowChunk * sums_size;",
        "partial + row / (2 * kRowChunk) * sums_size;",
        RESIDUAL,
        quick=True,
    ),
    Mutant(
        "bias-gradient-of-the-last-row",
        "csrc/cpu/residual.h",
        "      sum[k] += grad[k];\n",
        "      sum[k] = grad[k];\n",
        RESIDUAL,
    ),
    Mutant(
        "mean-of-a-row-forgotten",
        "csrc/cpu/residual.h",
        "mean[row] = middle;",
        "mean[row] = 0;",
        RESIDUAL,
    ),
    Mutant(
        "draws-start-anew-in-every-chunk",
        "csrc/cpu/residual.h",
        "Scorer<W>::place(layer, first + row, width)",
        "Scorer<W>::place(layer, first, width)",
        RESIDUAL,
    ),
    Mutant(
        "draws-start-anew-in-every-tile",
        "csrc/cpu/residual.h",
        "Scorer<W>::place(layer, first + row, width)",
        "Scorer<W>::place(layer, row, width)",
        RESIDUAL,
    ),
    Mutant(
        "kept-rows-of-another-tile",
        "csrc/cpu/residual.h",
        "add_bias_backward(scale, size, width, tile.out(layer - 1, at + row)",
        "add_bias_backward(scale, size, width, tile.out(layer - 1, row)",
        RESIDUAL,
    ),
    # ------------------------------------------------------------------------------------------- launching
    Mutant(
        "grid-rounds-down",
        "csrc/cuda/launch.cuh",
        "(items + block_size - 1) / block_size",
        "items / block_size",
        PARSE,
        quick=True,
    ),
    Mutant(
        "grid-one-block-short",
        "csrc/cuda/launch.cuh",
        "(items + block_size - 1) / block_size",
        "(items + block_size - 2) / block_size",
        PARSE,
    ),
    Mutant(
        "grid-and-block-swapped",
        "csrc/cuda/launch.cuh",
        "emulation::launch(blocks, unsigned(block_size),",
        "emulation::launch(unsigned(block_size), blocks,",
        PARSE,
    ),
    Mutant(
        "keys-of-parse-not-cleared",
        "csrc/cuda/parse.cuh",
        "    keys[v] = 0;\n",
        "",
        PARSE,
        quick=True,
    ),
    Mutant(
        "pointer-in-the-place-of-a-size",
        "csrc/cuda/parse.cuh",
        "launch(start_nodes<Node>, edges.num_nodes, edges.num_nodes, keys, parent);",
        "launch(start_nodes<Node>, edges.num_nodes, edges.num_nodes, parent, keys);",
        PARSE,
        "compiler",
    ),
    Mutant(
        "stride-of-the-grid",
        "csrc/cuda/launch.cuh",
        "int64_t(blockIdx.x) * blockDim.x + threadIdx.x",
        "int64_t(blockIdx.x) * gridDim.x + threadIdx.x",
        PARSE,
    ),
    # ------------------------------------------------------------------------------------------- the CPU
    Mutant(
        "joined-run-takes-the-later-tie",
        "csrc/cpu/dominant.h",
        "if (sweeps[t].head.code > open.code)",
        "if (sweeps[t].head.code >= open.code && sweeps[t].head.code != 0)",
        CORE,
    ),
    Mutant(
        "joined-run-not-carried-on",
        "csrc/cpu/dominant.h",
        "if (sweeps[t].tail.code != 0) open",
        "open",
        CORE,
    ),
    Mutant(
        "pieces-lose-the-rest",
        "csrc/cpu/parallel.h",
        "size / tasks * task + std::min(task, size % tasks)",
        "size / tasks * task",
        CORE,
    ),
    Mutant(
        "ids-fit-off-by-one",
        "csrc/cpu/blocks.h",
        "(uint64_t(num_nodes - 1) - uint64_t(id[i]))",
        "(uint64_t(num_nodes) - uint64_t(id[i]))",
        CORE,
    ),
    Mutant(
        "roots-of-earlier-pieces-forgotten",
        "csrc/cpu/components.h",
        "roots[t + 1] += roots[t];",
        "roots[t + 1] += 0;",
        CORE,
    ),
    Mutant(
        "wide-scores-raised-plain",
        "csrc/cpu/dominant.h",
        "atomic_raise(best + row[i], uint64_t(codes[i]));",
        "best[row[i]] = std::max(best[row[i]], uint64_t(codes[i]));",
        SCHEDULES,
        "race",
    ),
    # ---------------------------------------------------------------------------------- pooling on the CPU
    Mutant(
        "share-has-one-owner-more",
        "csrc/cpu/reduce.h",
        "uint64_t(owner) - uint64_t(first) < uint64_t(last - first)",
        "uint64_t(owner) - uint64_t(first) <= uint64_t(last - first)",
        CPU_POOLING,
        quick=True,
    ),
    Mutant(
        "share-has-one-owner-more-race",
        "csrc/cpu/reduce.h",
        "uint64_t(owner) - uint64_t(first) < uint64_t(last - first)",
        "uint64_t(owner) - uint64_t(first) <= uint64_t(last - first)",
        CPU_POOLING,
        "race",
    ),
    Mutant(
        "columns-not-shared-out",
        "csrc/cpu/reduce.h",
        "for (int64_t k = share.begin; k < share.end; ++k) target[k] += Sum<T>(x[i * width + k]);",
        "for (int64_t k = 0; k < share.end; ++k) target[k] += Sum<T>(x[i * width + k]);",
        CPU_POOLING,
    ),
    Mutant(
        "sums-from-the-end",
        "csrc/cpu/reduce.h",
        "for (int64_t i = 0; i < rows; ++i) {\n            Sum<T>* target = share.has",
        "for (int64_t i = rows - 1; i >= 0; --i) {\n            Sum<T>* target = share.has",
        CPU_POOLING,
    ),
    Mutant(
        "mean-of-empty-clusters",
        "csrc/cpu/reduce.h",
        "sizes && sizes[c] > 0 ? Sum<T>(sizes[c])",
        "sizes ? Sum<T>(sizes[c])",
        CPU_POOLING,
    ),
    Mutant(
        "maximum-of-none-is-the-lowest",
        "csrc/cpu/reduce.h",
        "sizes[c] == 0 ? T(0) : T(-std",
        "sizes[c] < 0 ? T(0) : T(-std",
        CPU_POOLING,
    ),
    Mutant(
        "gradient-to-every-maximum-on-the-cpu",
        "csrc/cpu/reduce.h",
        "                          taken[at] = true;\n",
        "",
        CPU_POOLING,
    ),
    Mutant(
        "sums-not-cleared",
        "csrc/cpu/reduce.h",
        "  clear(parallel, sums, num_clusters * width);\n",
        "",
        CPU_POOLING,
    ),
    Mutant(
        "id-minus-one-never-fits",
        "csrc/cpu/reduce.h",
        "(uint64_t(id[i]) - uint64_t(lowest)) |",
        "uint64_t(id[i]) |",
        CPU_POOLING,
    ),
    Mutant(
        "nan-is-no-maximum",
        "csrc/core/sums.h",
        "Sum<T>(value) > Sum<T>(best) || Sum<T>(value) != Sum<T>(value)",
        "Sum<T>(value) > Sum<T>(best)",
        CPU_POOLING,
    ),
    Mutant(
        "lift-skips-rows-in-no-cluster",
        "csrc/cpu/lift.h",
        "        std::fill(out + i * width, out + (i + 1) * width, T(0));\n",
        "",
        CPU_POOLING,
    ),
    # --------------------------------------------------------------------------------- what a level asks
    Mutant(
        "reverse-found-one-too-far",
        "csrc/core/progress.h",
        "r == row && sorted.col[middle] < col",
        "r == row && sorted.col[middle] <= col",
        POOLING,
    ),
    Mutant(
        "pair-of-a-reverse-by-its-own-place",
        "csrc/cuda/sorted_pairs.cuh",
        "if (reverse >= 0) slot[reverse] = pair;",
        "if (reverse >= 0) slot[reverse] = pair + (reverse > e);",
        POOLING,
    ),
    Mutant(
        "the-others-one-place-too-far",
        "csrc/core/edges.h",
        "num_wanted + v - so_far;",
        "num_wanted + v - so_far + 1;",
        POOLING,
    ),
    Mutant(
        "graphs-out-of-range-wanted",
        "csrc/core/edges.h",
        "uint64_t(batch[v]) < uint64_t(num_graphs) && graphs",
        "graphs",
        POOLING,
        "address",
    ),
    Mutant(
        "self-loops-keep-a-graph-going",
        "csrc/cuda/progress.cuh",
        "    if (row == col) continue;  // padding too\n",
        "",
        POOLING,
    ),
    Mutant(
        "half-of-a-warp-counted",
        "csrc/cuda/progress.cuh",
        "for (int offset = kWarp / 2; offset > 0; offset /= 2)",
        "for (int offset = kWarp / 4; offset > 0; offset /= 2)",
        POOLING,
    ),
    Mutant(
        "counts-added-without-atomics",
        "csrc/cuda/progress.cuh",
        "AtomicRef<Count>(*total).fetch_add(value, memory_order_relaxed);",
        "*total += value;",
        POOLING,
        "race",
    ),
    Mutant(
        "slot-of-a-reverse-is-the-last-pair",
        "csrc/cpu/sorted_pairs.h",
        "slot[e] = slot[reverse];",
        "slot[e] = found - 1;",
        CPU_POOLING,
    ),
    Mutant(
        "graphs-that-shrink-go-on",
        "csrc/cpu/progress.h",
        "      if (coarse.row[e] == coarse.col[e]) continue;\n",
        "",
        CPU_POOLING,
    ),
    Mutant(
        "one-way-edges-not-noticed",
        "csrc/cpu/progress.h",
        "sizes[kOneWayOn] += reverse < 0;",
        "sizes[kOneWayOn] += 0;",
        CPU_POOLING,
    ),
    Mutant(
        "counts-of-pieces-race",
        "csrc/cpu/progress.h",
        "      const std::lock_guard<std::mutex> lock(mutex);\n",
        "",
        CPU_POOLING,
        "race",
    ),
    Mutant(
        "mask-of-empty-clusters-is-zero",
        "csrc/cpu/mask.h",
        "count[c] == 0 ? T(1) : T(sum[c])",
        "T(sum[c])",
        CPU_POOLING,
    ),
    Mutant(
        "mask-of-outer-edges",
        "csrc/cpu/mask.h",
        "c == cluster[col[i]] ? c : -1",
        "c",
        CPU_POOLING,
    ),
    Mutant(
        "lanes-lose-the-rest",
        "csrc/cpu/pair_dot.h",
        "  for (int64_t lane = 0; k + lane < width; ++lane) lanes[lane] += term(k + lane);\n",
        "",
        CPU_POOLING,
        quick=True,
    ),
    Mutant(
        "tree-of-lanes-one-short",
        "csrc/cpu/pair_dot.h",
        "half = kLanes / 2; half > 0",
        "half = kLanes / 2; half > 1",
        CPU_POOLING,
    ),
    Mutant(
        "one-end-of-a-pair",
        "csrc/cpu/pair_dot.h",
        "gj[k] += g(p, k) * Sum<T>(hi[k]);",
        "gj[k] += g(p, k) * Sum<T>(hj[k]);",
        CPU_POOLING,
    ),
    Mutant(
        "pairs-of-another-task",
        "csrc/cpu/pair_dot.h",
        "      if (share.has(j)) {",
        "      {",
        CPU_POOLING,
    ),
    Mutant(
        "pair-tiles-overlap",
        "csrc/cpu/pair_dot.h",
        "std::min((tile + 1) * kPairTile, pairs.count)",
        "std::min((tile + 1) * kPairTile + 1, pairs.count)",
        CPU_POOLING,
    ),
    Mutant(
        "tiles-summed-in-half-precision",
        "csrc/cpu/pair_dot.h",
        "total += partial[tile * width + k];",
        "total += double(Sum<T>(T(partial[tile * width + k])));",
        CPU_POOLING,
    ),
    Mutant(
        "products-of-one-row",
        "csrc/cpu/pair_product.h",
        "const T* b = h + pairs.second[p] * width;",
        "const T* b = h + pairs.first[p] * width;",
        CPU_POOLING,
    ),
    Mutant(
        "word-one-bit-short",
        "csrc/cpu/unique_edges.h",
        "if (layout.word_bits() <= 32)",
        "if (layout.word_bits() <= 33)",
        CPU_POOLING,
        quick=True,
    ),
    Mutant(
        "wide-word-one-bit-short",
        "csrc/cpu/unique_edges.h",
        "if (layout.word_bits() <= 64)",
        "if (layout.word_bits() <= 65)",
        CPU_POOLING,
    ),
    Mutant(
        "ids-one-bit-short",
        "csrc/cpu/unique_edges.h",
        "std::bit_width(uint64_t(std::max<int64_t>(count - 1, 0)))",
        "std::bit_width(uint64_t(std::max<int64_t>(count - 1, 0)) >> 1)",
        CPU_POOLING,
    ),
    Mutant(
        "dropped-edges-keep-their-place",
        "csrc/cpu/unique_edges.h",
        "at += view.keeps(r, c);",
        "at += 1;",
        CPU_POOLING,
    ),
    Mutant(
        "slots-of-dropped-edges-unwritten",
        "csrc/cpu/unique_edges.h",
        "      if (slot) std::fill(slot + block, slot + block + count, -1);\n",
        "",
        CPU_POOLING,
    ),
    Mutant(
        "columns-unchecked",
        "csrc/cpu/unique_edges.h",
        "if (!fit(col, count) || !view_.accepts(row, col, count))",
        "if (!view_.accepts(row, col, count))",
        CPU_POOLING,
        "address",
        more=(("View::kRowNeedsCol && !fit(col, count)", "false"),),
    ),
    Mutant(
        "sort-leaves-words-in-the-spare",
        "csrc/cpu/unique_edges.h",
        "  if (from != words) std::copy_n(from, size, words);\n",
        "",
        CPU_POOLING,
    ),
    Mutant(
        "buckets-of-a-task-forgotten",
        "csrc/cpu/unique_edges.h",
        "if (task == pieces_.tasks) return layout_.buckets();",
        "if (task == pieces_.tasks) return layout_.buckets() - 1;",
        CPU_POOLING,
    ),
    Mutant(
        "representative-plain-on-the-cpu",
        "csrc/cpu/coarsen.h",
        "atomic_lower(representative + cluster[v], v);",
        "representative[cluster[v]] = std::min(representative[cluster[v]], v);",
        CPU_POOLING,
        "race",
    ),
    Mutant(
        "largest-cluster-of-the-last-task",
        "csrc/cpu/coarsen.h",
        "*std::max_element(largest.begin(), largest.end()) + 1",
        "largest.back() + 1",
        CPU_POOLING,
    ),
    Mutant(
        "direction-kept-on-the-cpu",
        "csrc/cpu/undirected.h",
        "return std::min(row, col);",
        "return row + 0 * col;",
        CPU_POOLING,
        more=(("return std::max(row, col);", "return 0 * row + col;"),),
    ),
    # --------------------------------------------------------- barriers, in a kernel of the layer's own test
    Mutant(
        "no-barrier-before-the-scan",
        "tests/cpp/test_emulation.cpp",
        "in[i] : 0;\n  __syncthreads();",
        "in[i] : 0;",
        EMULATION,
    ),
    Mutant(
        "no-barrier-after-reading",
        "tests/cpp/test_emulation.cpp",
        "    __syncthreads();  // everyone has read\n",
        "",
        EMULATION,
    ),
    Mutant(
        "no-barrier-after-writing",
        "tests/cpp/test_emulation.cpp",
        "    __syncthreads();  // everyone has written\n",
        "",
        EMULATION,
        quick=True,
    ),
    Mutant(
        "no-barrier-after-reading-race",
        "tests/cpp/test_emulation.cpp",
        "    __syncthreads();  // everyone has read\n",
        "",
        EMULATION,
        "race",
    ),
    Mutant(
        "no-barrier-after-writing-race",
        "tests/cpp/test_emulation.cpp",
        "    __syncthreads();  // everyone has written\n",
        "",
        EMULATION,
        "race",
        quick=True,
    ),
    Mutant(
        "return-before-barrier",
        "tests/cpp/test_emulation.cpp",
        "  sums[threadIdx.x] = i < count ? in[i] : 0;",
        "  if (i >= count) return;\n  sums[threadIdx.x] = in[i];",
        EMULATION,
        quick=True,
    ),
    # ----------------------------------------------------------------- relaxed memory, in small programs
    Mutant(
        "no-fence-before-the-counter",
        "tests/cpp/test_memory.cpp",
        "      if (fence) __threadfence();\n      if (add(w.seen[3], 1) < 1) return;",
        "      if (add(w.seen[3], 1) < 1) return;",
        MEMORY,
        quick=True,
    ),
    Mutant(
        "no-fence-after-the-counter",
        "tests/cpp/test_memory.cpp",
        "return;\n      if (fence) __threadfence();",
        "return;",
        MEMORY,
    ),
    Mutant(
        "loads-always-newest",
        "tests/cpp/emulation/memory.h",
        "if (oldest == last) return last;",
        "if (oldest <= last) return last;",
        MEMORY,
    ),
    Mutant(
        "loads-go-back",
        "tests/cpp/emulation/memory.h",
        "    self.seen[&word] = value.id;\n    if (value.published)",
        "    if (value.published)",
        MEMORY,
    ),
    Mutant(
        "relaxed-loads-acquire",
        "tests/cpp/emulation/memory.h",
        "join(acquires(order) ? self.seen : self.met, *value.published);",
        "join(self.seen, *value.published);",
        MEMORY,
    ),
    Mutant(
        "acquire-learns-nothing",
        "tests/cpp/emulation/memory.h",
        "join(acquires(order) ? self.seen : self.met, *value.published);",
        "join(self.met, *value.published);",
        MEMORY,
    ),
    Mutant(
        "stores-publish-nothing",
        "tests/cpp/emulation/memory.h",
        "if (releases(order) || self.fenced) {",
        "if (false) {",
        MEMORY,
    ),
    Mutant(
        "stores-always-last",
        "tests/cpp/emulation/memory.h",
        "if (random_.below(4) == 0)",
        "if (false)",
        MEMORY,
    ),
    Mutant(
        "store-between-read-and-write",
        "tests/cpp/emulation/memory.h",
        "while (at < word.values.size() && word.values[at].follows) ++at;",
        "",
        MEMORY,
    ),
    Mutant(
        "changes-read-old-values",
        "tests/cpp/emulation/memory.h",
        "load(thread, address, before, order, true);",
        "load(thread, address, before, order, false);",
        MEMORY,
    ),
    Mutant(
        "release-sequence-broken",
        "tests/cpp/emulation/memory.h",
        "{after, ++last_id_, true, word.values.back().published}",
        "{after, ++last_id_, true, nullptr}",
        MEMORY,
    ),
    Mutant(
        "fence-forgets-what-was-read",
        "tests/cpp/emulation/memory.h",
        "    join(self.seen, self.met);\n",
        "",
        MEMORY,
    ),
    Mutant(
        "fences-in-no-order",
        "tests/cpp/emulation/memory.h",
        "    join(self.seen, ordered_);\n",
        "",
        MEMORY,
    ),
    Mutant(
        "barrier-teaches-nothing",
        "tests/cpp/emulation/memory.h",
        "      threads_[thread].common = shared;\n",
        "",
        MEMORY,
    ),
    Mutant(
        "plain-writes-unseen",
        "tests/cpp/emulation/memory.h",
        "word.values.empty() || word.values.back().bits != newest",
        "word.values.empty()",
        MEMORY,
    ),
    # ------------------------------------------------------------------------------------------ counting
    Mutant(
        "sectors-of-64-bytes",
        "tests/cpp/emulation/counts.h",
        "kSector = 32;",
        "kSector = 64;",
        COUNTS,
        quick=True,
    ),
    Mutant(
        "last-sector-forgotten",
        "tests/cpp/emulation/counts.cpp",
        "sector <= (begin + bytes - 1) / kSector",
        "sector < (begin + bytes - 1) / kSector",
        COUNTS,
    ),
    Mutant(
        "lanes-never-meet",
        "tests/cpp/emulation/counts.cpp",
        "    warp.erase(std::unique(warp.begin(), warp.end(), same), warp.end());\n",
        "    (void)same;\n",
        COUNTS,
    ),
    Mutant(
        "turns-mixed-up",
        "tests/cpp/emulation/counts.cpp",
        "return std::tie(a.place, a.turn, a.writes, a.sector);",
        "return std::tie(a.place, a.writes, a.sector);",
        COUNTS,
    ),
    Mutant(
        "places-mixed-up",
        "tests/cpp/emulation/counts.cpp",
        "    for (auto& [known, count] : turns) {\n      if (known == place) return count++;",
        "    for (auto& [known, count] : turns) {\n      return count++;",
        COUNTS,
    ),
    Mutant(
        "reads-and-writes-mixed-up",
        "tests/cpp/emulation/counts.cpp",
        "++(access.writes ? kernel.sectors_written : kernel.sectors_read);",
        "++(access.writes ? kernel.sectors_read : kernel.sectors_written);",
        COUNTS,
    ),
    Mutant(
        "whole-blocks-for-warps",
        "tests/cpp/emulation/counts.cpp",
        "first < slots.size(); first += 32",
        "first < slots.size(); first += 64",
        COUNTS,
        more=(("t < std::min(first + 32, slots.size())", "t < std::min(first + 64, slots.size())"),),
    ),
    Mutant(
        "chains-of-two-threads",
        "tests/cpp/emulation/counts.cpp",
        "      thread.turns.clear();\n      thread.chain = 0;\n",
        "",
        COUNTS,
    ),
    Mutant(
        "sectors-of-the-launch-before",
        "tests/cpp/emulation/counts.cpp",
        "std::exchange(bits_[at], 0)",
        "bits_[at]",
        COUNTS,
        more=(("    touched_.clear();\n", ""),),
    ),
    Mutant(
        "host-memory-counted",
        "tests/cpp/emulation/counts.cpp",
        "if (begin < 0 || begin >= device_used || !in_kernel()) return;",
        "if (!in_kernel()) return;\n"
        "  if (begin < 0 || begin >= device_used) return void(state_->kernel->bytes_read += bytes * reads);",
        COUNTS,
    ),
    Mutant(
        "changes-read-twice",
        "tests/cpp/emulation/cuda/atomic",
        "    T old = peek();",
        "    T old = word_.load(std::memory_order_relaxed);",
        COUNTS,
    ),
    Mutant(
        "waits-not-counted",
        "tests/cpp/emulation/cuda_runtime.h",
        "  if (emulation::observer) emulation::observer->waited();\n",
        "",
        COUNTS,
    ),
    Mutant(
        "copies-to-the-host-written",
        "tests/cpp/emulation/cuda_runtime.h",
        "written = kind == cudaMemcpyDeviceToHost ? 0 : int64_t(bytes);",
        "written = int64_t(bytes);",
        COUNTS,
    ),
    Mutant(
        "memsets-of-a-sort-forgotten",
        "tests/cpp/emulation/cub/launches.h",
        'observer->launched("memset", passes * portions, 0, passes * lookback);',
        "",
        COUNTS,
        quick=True,
    ),
    Mutant(
        "digits-of-seven-bits",
        "tests/cpp/emulation/cub/launches.h",
        "in_steps(bits, 8)",
        "in_steps(bits, 7)",
        COUNTS,
    ),
    Mutant(
        "one-tile-too-far",
        "tests/cpp/emulation/cub/launches.h",
        "items <= 256 * scaled_items(19,",
        "items <= 1 + 256 * scaled_items(19,",
        COUNTS,
    ),
    Mutant(
        "terms-that-change-overlooked",
        "tests/cpp/emulation/cub/device/device_scan.cuh",
        "if (in[i] != terms[size_t(i)])",
        "if (false)",
        EMULATION,
    ),
    Mutant(
        "tiles-write-before-they-have-read",
        "tests/cpp/emulation/cub/device/device_scan.cuh",
        "      __syncthreads();\n",
        "",
        EMULATION,
    ),
    Mutant(
        "scan-without-its-first-kernel",
        "tests/cpp/emulation/cub/launches.h",
        "  observer->launched(init, 1, 0, descriptors);\n",
        "  (void)init;\n",
        COUNTS,
    ),
]


def emulation_object(mode: str) -> Path:
    return SCRATCH / f"emulation-{mode}.o"


def compile_flags(mode: str) -> list[str]:
    sanitizer = SANITIZER.get(mode)
    return [*FLAGS, *([f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else [])]


def build(
    sources: Path, test: str, mode: str, executable: Path, own_emulation: bool = False
) -> tuple[int, str]:
    """own_emulation: not the layer that was compiled once for all, but the one of these sources."""
    cpp = sources / "tests" / "cpp"
    emulation = cpp / "emulation" / "emulation.cpp" if own_emulation else emulation_object(mode)
    includes = [f"-I{directory}" for directory in (cpp / "emulation", sources / "csrc", cpp)]
    command, source = [CXX, *compile_flags(mode), *includes], cpp / f"{test}.cpp"
    linked = [source, emulation]
    if test == COUNTS:
        kernels = executable.with_suffix(".o")
        status, output = run([*command, *COUNTED, "-c", str(source), "-o", str(kernels)], timeout=600)
        if status != 0:
            return status, output
        linked = [kernels, cpp / "emulation" / "counts.cpp", emulation]
    return run([*command, *map(str, linked), "-o", str(executable)], timeout=600)


@functools.cache
def without_randomised_addresses() -> list[str]:
    """ThreadSanitizer's fixed memory layout can collide with strong address randomisation."""
    setarch = shutil.which("setarch")
    return [setarch, "-R"] if setarch and run([setarch, "-R", "true"], 10)[0] == 0 else []


def copy_sources(to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(ROOT / "csrc", to / "csrc")
    shutil.copytree(ROOT / "tests" / "cpp", to / "tests" / "cpp")


def outcome(mutant: Mutant) -> str | None:
    """None if the bug was caught as it should be, else what happened instead."""
    sources = SCRATCH / mutant.name
    copy_sources(sources)
    try:
        plant(mutant, sources)
    except LookupError as error:
        return str(error)
    mode = "result" if mutant.shows == "compiler" else mutant.shows
    executable = sources / "test"
    own_emulation = mutant.file.startswith("tests/cpp/emulation/")
    status, output = build(sources, mutant.test, mode, executable, own_emulation)
    if mutant.shows == "compiler":
        caught = status != 0 and re.search(SIGNS["compiler"], output)
        return None if caught else "it compiles"
    if status != 0:
        return f"it does not compile:\n{output}"
    status, output = run([*without_randomised_addresses(), str(executable)], timeout=300)
    if status == 0:
        return f"{mutant.test} passes"
    if not re.search(SIGNS[mutant.shows], output):
        return f"{mutant.test} failed, but not as expected ({mutant.shows}):\n{output[-2000:]}"
    shutil.rmtree(sources)
    return None


def prepare(chosen: list[Mutant], jobs: int) -> str | None:
    """Builds what all share, and runs every test without a bug."""
    wanted = {("result" if mutant.shows == "compiler" else mutant.shows, mutant.test) for mutant in chosen}
    SCRATCH.mkdir(parents=True, exist_ok=True)
    sources = SCRATCH / "unplanted"
    copy_sources(sources)

    def shared(mode: str) -> str | None:
        source = sources / "tests" / "cpp" / "emulation" / "emulation.cpp"
        command = [CXX, *compile_flags(mode), f"-I{source.parent}", "-c", str(source)]
        status, output = run([*command, "-o", str(emulation_object(mode))], timeout=600)
        return output if status != 0 else None

    def unplanted(mode_and_test: tuple[str, str]) -> str | None:
        mode, test = mode_and_test
        executable = sources / f"{test}-{mode}"
        status, output = build(sources, test, mode, executable)
        if status == 0:
            status, output = run([*without_randomised_addresses(), str(executable)], timeout=600)
        failed = f"{test} ({mode}) fails without a planted bug:\n{output[-2000:]}"
        return failed if status != 0 else None

    problem = first_problem(shared, sorted({mode for mode, _ in wanted}), jobs)
    problem = problem or first_problem(unplanted, sorted(wanted), jobs)
    if problem is None:
        shutil.rmtree(sources)
    return problem


if __name__ == "__main__":
    sys.exit(main("Planted bugs that the C++ tests have to catch.", MUTANTS, prepare, outcome))
