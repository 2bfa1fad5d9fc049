// Coarsen, reduce, mask and pair products of the CPU library, without torch: equal to plain solvers bit for
// bit, for any number of threads.
#include <cmath>
#include <limits>
#include <memory>

#include "cpu/coarsen.h"
#include "cpu/dropout.h"
#include "cpu/lift.h"
#include "cpu/mask.h"
#include "cpu/pair_product.h"
#include "cpu/progress.h"
#include "cpu/undirected.h"
#include "half.h"
#include "plain_pooling.h"

namespace gpn::test {
namespace {

using Engine = std::mt19937_64;

int64_t below(Engine& random, int64_t bound) { return int64_t(random() % uint64_t(bound)); }

// Values whose sums depend on the order they are taken in.
template <class T>
std::vector<T> random_values(Engine& random, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    const double magnitude = std::ldexp(1.0, int(below(random, 24)) - 12);
    values.push_back(T(magnitude * (double(below(random, 2001)) - 1000) / 777));
  }
  return values;
}

// Values whose sums of products are exact in any order.
template <class T>
std::vector<T> small_integers(Engine& random, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(T(double(below(random, 9)) - 4));
  return values;
}

// Values that tie, both zeros and NaN among them.
template <class T>
std::vector<T> tied_values(Engine& random, int64_t count) {
  std::vector<T> values = small_integers<T>(random, count);
  for (T& value : values) {
    if (below(random, 9) == 0) value = T(below(random, 2) ? -0.0 : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

std::vector<int64_t> random_ids(Engine& random, int64_t count, int64_t lowest, int64_t bound) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(lowest + below(random, bound - lowest));
  return ids;
}

// Memory for kernels: of exactly the size that is asked for.
struct Memory {
  void* operator()(int64_t bytes) const {
    held.push_back(std::make_unique<char[]>(size_t(bytes)));
    return held.back().get();
  }
  Memory nested() const { return {}; }
  mutable std::vector<std::unique_ptr<char[]>> held{};
};

template <class T>
std::vector<T> rounded(const std::vector<Sum<T>>& values) {
  std::vector<T> out;
  for (const Sum<T> value : values) out.push_back(T(value));
  return out;
}

// ------------------------------------------------------------------------------------------- unique edges

template <class Word, class View>
PlainEdges unique_edges(const Threads& threads, const Edges& edges, View view,
                        const cpu::EdgeLayout& layout) {
  CHECK(layout.word_bits() <= int64_t(8 * sizeof(Word)));
  const bool with_slot = layout.edge_bits > 0;
  std::vector<Word> words(static_cast<size_t>(edges.count)), spare;
  PlainEdges out;
  out.slot.assign(with_slot ? size_t(edges.count) : 0, -7);
  int64_t* slot = with_slot ? out.slot.data() : nullptr;
  cpu::UniqueEdges<Threads, View, Word> unique(threads, edges, view, layout, words.data());
  CHECK(unique.scatter(slot));
  const int64_t count = unique.sort([&](int64_t bytes) {
    spare.resize(size_t(bytes) / sizeof(Word));
    return spare.data();
  });
  out.row.resize(size_t(count));
  out.col.resize(size_t(count));
  unique.write(out.row.data(), out.col.data(), slot);
  return out;
}

template <class View>
void check_unique(const Threads& threads, const Edges& edges, View view, int64_t num_ids, PlainEdges expected,
                  int64_t bucket) {
  for (const bool with_slot : {true, false}) {
    const cpu::EdgeLayout layout(edges.count, num_ids, with_slot, bucket);
    if (layout.edge_bits == 0) expected.slot.clear();
    if (layout.word_bits() <= 32) CHECK(unique_edges<uint32_t>(threads, edges, view, layout) == expected);
    CHECK(unique_edges<uint64_t>(threads, edges, view, layout) == expected);
    CHECK(unique_edges<unsigned __int128>(threads, edges, view, layout) == expected);
  }
}

void test_unique_edges(Engine& random) {
  for (const int64_t num_nodes : {1, 2, 3, 17, 100, 5000}) {
    for (const int64_t num_edges : {0, 1, 2, 64, 3000}) {
      const Graph<float> graph = random_graph<float>(random, num_nodes, num_edges, random() % 2 == 0);
      const Edges edges = graph.edges();
      const int64_t num_clusters = 1 + below(random, num_nodes);
      const std::vector<int64_t> cluster = random_ids(random, num_nodes, 0, num_clusters);
      const std::vector<int32_t> narrow(cluster.begin(), cluster.end());
      for (const int64_t threads : {1, 2, 5}) {
        for (const int64_t bucket : {1, 40, 8192}) {
          for (const bool self_loops : {false, true}) {
            const PlainEdges coarse = plain_coarsen(edges, cluster, self_loops);
            check_unique(Threads{threads}, edges, cpu::BetweenClusters<int32_t>{narrow.data(), self_loops},
                         num_clusters, coarse, bucket);
            check_unique(Threads{threads}, edges, cpu::BetweenClusters<int64_t>{cluster.data(), self_loops},
                         num_clusters, coarse, bucket);
          }
          check_unique(Threads{threads}, edges, cpu::WithoutDirection(), num_nodes, plain_undirected(edges),
                       bucket);
        }
      }
    }
  }
}

// Ids far apart: every digit of a key takes part.
void test_sorting(Engine& random) {
  for (const int64_t bits : {0, 1, 11, 12, 31, 40, 61}) {
    for (const int64_t low : {0, 2}) {
      std::vector<uint64_t> words;
      for (int64_t i = 0; i < 2000; ++i) words.push_back(random() & ((uint64_t(1) << (bits + low)) - 1));
      std::vector<uint64_t> expected = words, spare(words.size());
      std::stable_sort(expected.begin(), expected.end(),
                       [=](uint64_t a, uint64_t b) { return a >> low < b >> low; });
      std::vector<uint32_t> counts;
      cpu::sort_words(words.data(), spare.data(), int64_t(words.size()), low, bits, counts);
      CHECK(words == expected);
    }
  }
}

void test_layout() {
  // What does not fit 32 or 64 bits must say so.
  CHECK(cpu::EdgeLayout(4'000'000, 1'000'000, false).word_bits() <= 32);
  CHECK(cpu::EdgeLayout(4'000'000, 1'000'000, true).word_bits() <= 64);
  const cpu::EdgeLayout huge(int64_t(1) << 40, int64_t(1) << 36, true);
  CHECK(huge.id_bits == 36 && huge.edge_bits == 40 && huge.word_bits() == 36 + 36 - huge.bucket_bits + 40);
  const cpu::EdgeLayout empty(0, 0, true);
  CHECK(empty.word_bits() == 0 && empty.buckets() == 1);
  CHECK(cpu::EdgeLayout(100, 2, true).id_bits == 1 && cpu::EdgeLayout(100, 3, true).id_bits == 2);
}

// Words of every number of bits around the sizes that a word can have, with ids up to the last.
void test_word_sizes(Engine& random) {
  struct {
    std::vector<int64_t> edges{};
    int64_t* new_edges(int64_t count) {
      edges.assign(size_t(2 * count), -7);
      return edges.data();
    }
  } found;
  std::vector<int64_t> met;
  for (int64_t id_bits = 10; id_bits <= 34; ++id_bits) {
    for (const int64_t count : {1, 2, 3, 5, 9}) {
      const int64_t num_nodes = int64_t(1) << id_bits;
      Graph<float> graph{{}, {}, {}, num_nodes};
      for (int64_t e = 0; e < count; ++e) {
        graph.row.push_back(num_nodes - 1 - below(random, 3));
        graph.col.push_back(below(random, 2) ? num_nodes - 1 - below(random, 3) : below(random, 3));
      }
      const PlainEdges expected = plain_undirected(graph.edges());
      std::vector<int64_t> slot(size_t(count), -7), ends = expected.row;
      cpu::undirected_kernel(Threads{2}, graph.edges(), slot.data(), found, Memory());
      ends.insert(ends.end(), expected.col.begin(), expected.col.end());
      CHECK(found.edges == ends && slot == expected.slot);
      met.push_back(cpu::EdgeLayout(count, num_nodes, true).word_bits());
    }
  }
  for (const int64_t bits : {31, 32, 33, 63, 64, 65}) CHECK(std::count(met.begin(), met.end(), bits) > 0);
}

void test_sorted_pairs(Engine& random) {
  for (const int64_t num_nodes : {1, 2, 40, 300}) {
    for (const int64_t num_edges : {0, 1, 50, 900}) {
      const Graph<float> graph =
          sorted_and_symmetric(random_graph<float>(random, num_nodes, num_edges, false));
      const PlainEdges expected = plain_undirected(graph.edges());
      const int64_t num_pairs = int64_t(expected.row.size());
      std::vector<int64_t> pairs(size_t(2 * num_pairs), -7), slot(graph.row.size(), -7), ends = expected.row;
      ends.insert(ends.end(), expected.col.begin(), expected.col.end());
      cpu::sorted_pairs_kernel(Threads{2}, graph.edges(), num_pairs, pairs.data(), slot.data(), Memory());
      CHECK(pairs == ends && slot == expected.slot);
    }
  }
}

void test_progress(Engine& random) {
  for (int64_t round = 0; round < 400; ++round) {
    const Levelled made = levelled([&](int64_t bound) { return below(random, bound); }, round % 2, round % 3);
    PlainProgress found{std::vector<int64_t>(kNumProgressSizes, -7),
                        std::vector<int64_t>(size_t(made.num_graphs), -7),
                        std::vector<int64_t>(size_t(made.num_graphs), -7)};
    cpu::progress_kernel(Threads{1 + round % 4}, made.progress(), found.sizes.data(), found.shrinks.data(),
                         found.goes_on.data(), Memory());
    CHECK(found == plain_progress(made));
  }
}

void test_bad_edges(Engine& random) {
  for (const int64_t threads : {1, 3}) {
    for (const int64_t bad : {int64_t(-1), int64_t(50), INT64_MIN, INT64_MAX}) {
      for (const bool in_col : {false, true}) {
        Graph<float> graph = random_graph<float>(random, 50, 600, false);
        (in_col ? graph.col : graph.row)[size_t(below(random, 600))] = bad;
        const cpu::EdgeLayout layout(600, 50, false);
        std::vector<uint32_t> words(600);
        const Threads parallel{threads};
        cpu::UniqueEdges<Threads, cpu::WithoutDirection, uint32_t> unique(parallel, graph.edges(), {}, layout,
                                                                          words.data());
        CHECK(!unique.scatter(nullptr));
        const std::vector<int64_t> cluster(50, 0);
        CHECK(!cpu::for_each_inner(parallel, graph.edges(), cluster.data(), [](int64_t, int64_t) {}));
      }
      std::vector<int64_t> cluster = random_ids(random, 50, 0, 50);
      std::vector<int32_t> narrow(50);
      const std::vector<int64_t> good = cluster;
      cluster[size_t(below(random, 50))] = bad;
      CHECK(cpu::narrow_clusters(Threads{threads}, cluster.data(), 50, narrow.data()) == -1);
      CHECK(!cpu::all_fit(Threads{threads}, cluster.data(), 50, 0, 50));
      CHECK(cpu::all_fit(Threads{threads}, cluster.data(), 50, -1, 50) == (bad == -1));
      CHECK(cpu::all_fit(Threads{threads}, good.data(), 50, 0, 50));
    }
  }
}

void test_clusters(Engine& random) {
  for (const int64_t num_nodes : {0, 1, 2, 100}) {
    for (const int64_t threads : {1, 2, 7}) {
      const std::vector<int64_t> cluster =
          random_ids(random, num_nodes, 0, std::max<int64_t>(num_nodes / 2, 1));
      std::vector<int32_t> narrow(static_cast<size_t>(num_nodes));
      const int64_t count = cpu::narrow_clusters(Threads{threads}, cluster.data(), num_nodes, narrow.data());
      CHECK(count == (num_nodes == 0 ? 0 : *std::max_element(cluster.begin(), cluster.end()) + 1));
      std::vector<int64_t> smallest(size_t(count), -7), expected(size_t(count), num_nodes);
      for (int64_t v = num_nodes - 1; v >= 0; --v) expected[size_t(cluster[size_t(v)])] = v;
      cpu::smallest_nodes(Threads{threads}, narrow.data(), num_nodes, count, smallest.data());
      CHECK(smallest == expected);
      if (num_nodes == 0) continue;
      const Graph<float> graph{
          random_ids(random, 90, 0, num_nodes), random_ids(random, 90, 0, num_nodes), {}, num_nodes};
      std::vector<uint32_t> order(size_t(InnerEdges::size(90, num_nodes)));
      bool some[90];
      for (bool& takes_part : some) takes_part = below(random, 3) > 0;
      for (const bool* takes_part : {static_cast<const bool*>(nullptr), static_cast<const bool*>(some)}) {
        cpu::order_inner_edges(graph.edges(), cluster.data(), takes_part, InnerEdges::of(order.data(), 90));
        CHECK(order == plain_inner_order(graph.edges(), cluster, takes_part));
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ segments

template <class T>
void test_segments(Engine& random) {
  for (const int64_t rows : {0, 1, 2, 50, 700}) {
    for (const int64_t width : {1, 3, 16, 40}) {
      const int64_t num_clusters = 1 + below(random, 60);
      const std::vector<int64_t> cluster = random_ids(random, rows, -1, num_clusters);
      const std::vector<T> x = random_values<T>(random, rows * width);
      const Segments<> segments{cluster.data(), rows, width, num_clusters};
      const std::vector<T> start = random_values<T>(random, num_clusters * width);
      std::vector<Sum<T>> expected(start.begin(), start.end());
      plain_accumulate(cluster, x, width, expected);
      const std::vector<int64_t> sizes = plain_sizes(cluster, num_clusters);
      const std::vector<T> tied = tied_values<T>(random, rows * width);
      const auto [highest, first] = plain_maximum(cluster, tied, width, num_clusters);
      for (const int64_t threads : {1, 2, 5}) {
        const Threads parallel{threads};
        std::vector<Sum<T>> sums(start.begin(), start.end());
        cpu::accumulate(parallel, segments, x.data(), sums.data());
        CHECK(same_bits(sums.data(), expected));

        std::vector<int64_t> counted(size_t(num_clusters), -7);
        cpu::count_rows(parallel, cluster.data(), rows, num_clusters, counted.data());
        CHECK(counted == sizes);

        std::vector<T> out(size_t(num_clusters * width), T(-7));
        cpu::maximum(parallel, segments, tied.data(), sizes.data(), out.data());
        CHECK(same_bits(out.data(), highest));

        const std::vector<T> grad = random_values<T>(random, num_clusters * width);
        std::vector<T> grad_x(size_t(rows * width), T(-7)), expected_grad(grad_x.size(), T(0));
        for (size_t at = 0; at < first.size(); ++at) {
          if (first[at] >= 0) expected_grad[size_t(first[at] * width) + at % size_t(width)] = grad[at];
        }
        const auto taken = std::make_unique<bool[]>(out.size());
        cpu::maximum_backward(parallel, segments, grad.data(), tied.data(), out.data(), taken.get(),
                              grad_x.data());
        CHECK(same_bits(grad_x.data(), expected_grad));

        std::vector<T> lifted(size_t(rows * width), T(-7)), expected_rows;
        for (int64_t i = 0; i < rows * width; ++i) {
          const int64_t c = cluster[size_t(i / width)];
          expected_rows.push_back(c < 0 ? T(0) : grad[size_t(c * width + i % width)]);
        }
        cpu::lift(parallel, segments, grad.data(), lifted.data());
        CHECK(same_bits(lifted.data(), expected_rows));

        for (const bool mean : {false, true}) {
          std::vector<Sum<T>> reduced(size_t(num_clusters * width), 0);
          plain_accumulate(cluster, x, width, reduced);
          for (size_t at = 0; mean && at < reduced.size(); ++at) {
            reduced[at] /= Sum<T>(std::max<int64_t>(sizes[at / size_t(width)], 1));
          }
          out.assign(out.size(), T(-7));
          cpu::reduce_kernel(parallel, segments, x.data(), mean ? Reduction::kMean : Reduction::kSum,
                             out.data(), Memory());
          CHECK(same_bits(out.data(), rounded<T>(reduced)));
        }
        cpu::reduce_kernel(parallel, segments, tied.data(), Reduction::kMax, out.data(), Memory());
        CHECK(same_bits(out.data(), highest));
      }
    }
  }
}

template <class T>
void test_mask(Engine& random) {
  for (const int64_t num_nodes : {1, 5, 80}) {
    for (const int64_t num_edges : {0, 1, 900}) {
      const Graph<T> graph = random_graph<T>(random, num_nodes, num_edges, false);
      const Edges edges = graph.edges();
      const std::vector<T> scores = random_values<T>(random, num_edges);
      const int64_t num_clusters = num_nodes / 3 + 1;
      const std::vector<int64_t> cluster = random_ids(random, num_nodes, 0, num_clusters);
      bool some[900];
      for (bool& takes_part : some) takes_part = below(random, 3) > 0;
      for (const int64_t threads : {1, 2, 5}) {
        const bool* takes_part = threads == 2 ? nullptr : some;
        const PlainMask<T> plain = plain_mask(edges, scores, cluster, num_clusters, takes_part);
        const Threads parallel{threads};
        std::vector<int32_t> slot(static_cast<size_t>(num_edges));
        CHECK(cpu::for_each_inner(parallel, edges, cluster.data(), takes_part,
                                  [&](int64_t e, int64_t c) { slot[size_t(e)] = int32_t(c); }));
        std::vector<T> total(static_cast<size_t>(num_clusters));
        std::vector<Sum<T>> sum(static_cast<size_t>(num_clusters));
        std::vector<int64_t> count(static_cast<size_t>(num_clusters));
        cpu::mask(parallel, slot.data(), scores.data(), num_edges, num_clusters, total.data(), sum.data(),
                  count.data());
        CHECK(same_bits(total.data(), plain.total));
        CHECK(count == plain.count);
        std::vector<T> grad_scores(size_t(num_edges), T(-7)), expected;
        for (int64_t e = 0; e < num_edges; ++e) {
          const int64_t c = cluster[size_t(edges.row[e])];
          const bool is_inner = (!takes_part || takes_part[e]) && c == cluster[size_t(edges.col[e])];
          expected.push_back(is_inner ? total[size_t(c)] : T(0));
        }
        CHECK(cpu::mask_backward(parallel, edges, cluster.data(), takes_part, total.data(),
                                 grad_scores.data()));
        CHECK(same_bits(grad_scores.data(), expected));
      }
    }
  }
}

// --------------------------------------------------------------------------------------------------- pairs

template <class T>
void test_pairs(Engine& random) {
  for (const int64_t num_nodes : {1, 4, 60}) {
    for (const int64_t num_pairs : {0, 1, 300, 2500}) {
      for (const int64_t width : {1, 15, 16, 33}) {
        const std::vector<int64_t> first = random_ids(random, num_pairs, 0, num_nodes);
        const std::vector<int64_t> second = random_ids(random, num_pairs, 0, num_nodes);
        const Pairs pairs{first.data(), second.data(), num_pairs, num_nodes};
        const std::vector<T> exact = small_integers<T>(random, num_nodes * width),
                             weight = small_integers<T>(random, width);
        const std::vector<T> h = random_values<T>(random, num_nodes * width);
        const std::vector<T> grad = small_integers<T>(random, num_pairs);
        const std::vector<T> grad_product = random_values<T>(random, num_pairs * width);
        std::vector<T> dot, product;
        std::vector<Sum<T>> grad_weight(size_t(width), 0), grad_exact(exact.size(), 0);
        for (int64_t p = 0; p < num_pairs; ++p) {
          Sum<T> sum = 0;
          for (int64_t k = 0; k < width; ++k) {
            const size_t i = size_t(first[size_t(p)] * width + k), j = size_t(second[size_t(p)] * width + k);
            sum += exact[i] * weight[size_t(k)] * exact[j];
            product.push_back(T(h[i] * h[j]));
            grad_weight[size_t(k)] += grad[size_t(p)] * exact[i] * exact[j];
          }
          dot.push_back(T(sum));
        }
        plain_both_ends(
            first, second, exact, width,
            [&](int64_t p, int64_t k) { return Sum<T>(grad[size_t(p)]) * Sum<T>(weight[size_t(k)]); },
            grad_exact);
        std::vector<Sum<T>> grad_h(h.begin(), h.end());
        plain_both_ends(
            first, second, h, width,
            [&](int64_t p, int64_t k) { return Sum<T>(grad_product[size_t(p * width + k)]); }, grad_h);
        for (const int64_t threads : {1, 2, 5}) {
          const Threads parallel{threads};
          std::vector<T> out(dot.size(), T(-7)), tile(product.size(), T(-7)),
              out_weight(size_t(width), T(-7));
          cpu::pair_dot(parallel, exact.data(), weight.data(), pairs, width, out.data());
          CHECK(same_bits(out.data(), dot));
          cpu::pair_product(parallel, h.data(), pairs, width, tile.data());
          CHECK(same_bits(tile.data(), product));
          std::vector<Sum<T>> sums(h.begin(), h.end());
          cpu::add_both_ends(
              parallel, h.data(), pairs, num_nodes, width,
              [&](int64_t p, int64_t k) { return Sum<T>(grad_product[size_t(p * width + k)]); }, sums.data());
          CHECK(same_bits(sums.data(), grad_h));
          cpu::pair_dot_weight_backward(parallel, grad.data(), exact.data(), pairs, width, out_weight.data());
          CHECK(same_bits(out_weight.data(), rounded<T>(grad_weight)));
          std::vector<T> out_h(exact.size(), T(-7));
          out_weight.assign(out_weight.size(), T(-7));
          cpu::pair_dot_backward_kernel(parallel, pairs, grad.data(), exact.data(), weight.data(), width,
                                        out_h.data(), out_weight.data(), Memory());
          CHECK(same_bits(out_h.data(), rounded<T>(grad_exact)));
          CHECK(same_bits(out_weight.data(), rounded<T>(grad_weight)));
        }
      }
    }
  }
}

template <class T>
void test_dropout(Engine& random) {
  for (const int64_t count : {0, 1, 3, 4, 511, 512, 513, 1500}) {
    for (const int64_t first : {int64_t(0), int64_t(1), int64_t(6), (int64_t(1) << 48) + 3}) {
      for (const bool relu : {false, true}) {
        const std::vector<T> x = tied_values<T>(random, count);
        const int64_t seed = int64_t(random());
        const Dropout<Sum<T>> dropout{20000, Sum<T>(1.44), relu};
        const std::vector<T> expected =
            plain_dropout(x, uint64_t(seed), uint64_t(first), 20000, Sum<T>(1.44), relu);
        for (const int tasks : {1, 2, 5}) {
          std::vector<T> out(x.size(), T(-7)), in_place = x;
          cpu::dropout_kernel(Threads{tasks}, dropout, &seed, first, count, x.data(), out.data());
          CHECK(same_bits(out.data(), expected));
          cpu::dropout_kernel(Threads{tasks}, dropout, &seed, first, count, in_place.data(), in_place.data());
          CHECK(same_bits(in_place.data(), expected));
        }
      }
    }
  }
}

// Sums of a tile that half precision could not hold; that of all tiles it can.
template <class T>
void test_half_tiles() {
  const int64_t num_pairs = 2 * cpu::kPairTile;
  const std::vector<int64_t> nodes(size_t(num_pairs), 0);
  const Pairs pairs{nodes.data(), nodes.data(), num_pairs, 1};
  std::vector<T> grad(size_t(num_pairs), T(12.0)), one{T(1.0)}, out { T(-7.0) };
  std::fill(grad.begin() + cpu::kPairTile, grad.end(), T(-12.0));
  grad[0] = T(13.0);
  cpu::pair_dot_weight_backward(Threads{2}, grad.data(), one.data(), pairs, 1, out.data());
  CHECK(float(out[0]) == 1);
}

}  // namespace
}  // namespace gpn::test

// Planted bugs (mutants.py) are looked for with two dtypes, which saves time to compile.
int main() {
  using namespace gpn::test;
  Engine random(7);
  test_layout();
  test_sorting(random);
  test_unique_edges(random);
  test_word_sizes(random);
  test_sorted_pairs(random);
  test_progress(random);
  test_bad_edges(random);
  test_clusters(random);
  test_segments<float>(random);
  test_segments<Half>(random);
  test_mask<float>(random);
  test_mask<Half>(random);
  test_pairs<float>(random);
  test_pairs<Half>(random);
  test_dropout<float>(random);
  test_dropout<Half>(random);
#if !defined(GPN_OPS_TWO_DTYPES)
  test_segments<double>(random);
  test_mask<double>(random);
  test_pairs<double>(random);
  test_dropout<double>(random);
#endif
  test_half_tiles<Half>();
  test_half_tiles<BFloat16>();
  return 0;
}
