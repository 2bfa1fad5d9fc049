// The CUDA kernels of coarsen, reduce, mask and the pair products, run by their own launch code on the
// emulated device: equal to plain solvers, bit for bit.
#include <cuda_runtime.h>
//
#include <cmath>
#include <limits>
#include <numeric>

#include "cuda/coarsen.cuh"
#include "cuda/dropout.cuh"
#include "cuda/lift.cuh"
#include "cuda/mask.cuh"
#include "cuda/pair_product.cuh"
#include "cuda/partition.cuh"
#include "cuda/progress.cuh"
#include "cuda/sorted_pairs.cuh"
#include "cuda/undirected.cuh"
#include "device.h"
#include "plain_pooling.h"
#include "seeds.h"

namespace gpn::test {
namespace {

using cuda::Launcher;
using emulation::Random;
using emulation::record;

Launcher random_launcher(Random& random) {
  const int block_size = random.of<int>({32, 64, 96, 256, 256, 1024});
  // Few blocks make the grid-stride loops iterate; short pieces make folds of several levels.
  return {nullptr, block_size, random.of<int64_t>({1, 2, 3, cuda::kMaxBlocks}),
          random.of<int>({Launcher().piece_bits, 1, 2, 3, 5})};
}

size_t piece_of(const Launcher& launch) { return size_t(1) << launch.piece_bits; }

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t begin, int64_t end) {
  return {all.begin() + begin, all.begin() + end};
}

std::vector<int64_t> random_ids(Random& random, int64_t count, int64_t lowest, int64_t bound) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(lowest + random.below(bound - lowest));
  return ids;
}

// Values whose sums depend on the order they are taken in.
template <class T>
std::vector<T> random_values(Random& random, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(T(std::ldexp(double(random.below(2001) - 1000) / 777, int(random.below(16)) - 8)));
  }
  return values;
}

// Values whose sums of products are exact in any order.
template <class T>
std::vector<T> small_integers(Random& random, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(T(double(random.below(5) - 2)));
  return values;
}

// Values that tie, both zeros and NaN among them.
template <class T>
std::vector<T> tied_values(Random& random, int64_t count) {
  std::vector<T> values = small_integers<T>(random, count);
  for (T& value : values) {
    if (random.below(9) == 0) value = T(random.below(2) ? -0.0 : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

Graph<float> random_edges(Random& random) {
  const int64_t num_nodes = random.of<int64_t>({1, 2, 3, 31, 33, 200});
  Graph<float> graph{{}, {}, {}, num_nodes};
  const int64_t num_edges = random.of<int64_t>({0, 1, 32, 33, 400, random.below(1500)});
  graph.row = random_ids(random, num_edges, 0, num_nodes);
  graph.col = random_ids(random, num_edges, 0, num_nodes);
  return graph;
}

Edges on_device(const Graph<float>& graph, const Scratch& memory) {
  return {memory.copy(graph.row), memory.copy(graph.col), int64_t(graph.row.size()), graph.num_nodes};
}

// Values of some type in this run: 16-bit types are only convertible.
template <class T>
std::vector<T> rounded(const std::vector<Sum<T>>& values) {
  std::vector<T> out;
  for (const Sum<T> value : values) out.push_back(T(value));
  return out;
}

// ----------------------------------------------------------------------------------------------- unique
// edges

// With clusters in room for so many, if there are any.
template <class Id, class View>
PlainEdges unique_edges(const Launcher& launch, const Edges& edges, View view, bool with_slot,
                        const Scratch& memory, const int64_t* cluster = nullptr, int64_t room = 0) {
  const cuda::Clusters clusters{cluster, edges.num_nodes, memory.array<int64_t>(room), room};
  int64_t* counts = memory.array<int64_t>(2);
  int64_t* slot = with_slot ? memory.array<int64_t>(edges.count) : nullptr;
  const cuda::UniqueEdges<Id> unique(launch, edges, view, clusters, slot, {}, counts, memory);
  CHECK((counts[0] == 0) == (cluster == nullptr));
  const int64_t count = counts[1];
  int64_t* row = memory.array<int64_t>(2 * count);
  unique.write({row, count, memory.array<int64_t>(counts[0]), counts[0], nullptr});
  return {to_host(row, count), to_host(row + count, count), to_host(slot, with_slot ? edges.count : 0)};
}

// Makes what a kernel finds the size of.
struct FoundOnDevice {
  const Scratch& memory;
  int64_t *edges = nullptr, *representative = nullptr;
  int64_t num_edges = 0, num_clusters = 0;
  int64_t* new_edges(int64_t count) { return edges = memory.array<int64_t>(2 * (num_edges = count)); }
  int64_t* new_representative(int64_t count) {
    return representative = memory.array<int64_t>(num_clusters = count);
  }
};

// In room that may be too small; with the order of the inner edges where there are no self-loops. Of all
// edges or of some.
void test_padded(Random& random, const Launcher& launch, const Graph<float>& graph,
                 const std::vector<int64_t>& cluster, bool self_loops, const std::vector<int64_t>& smallest) {
  const Scratch memory(random());
  const int64_t count = int64_t(graph.row.size());
  bool* takes_part = random.below(2) ? memory.array<bool>(count) : nullptr;
  for (int64_t e = 0; takes_part && e < count; ++e) takes_part[e] = random.below(3) > 0;
  const PlainEdges expected = plain_coarsen(graph.edges(), cluster, self_loops, takes_part);
  const int64_t num_edges = int64_t(expected.row.size()), num_clusters = int64_t(smallest.size());
  const int64_t room = std::max<int64_t>(num_edges + random.of<int64_t>({-1, 0, 1, 40}), 0),
                clusters = std::max<int64_t>(num_clusters + random.of<int64_t>({-1, 0, 1, 40}), 0);
  const bool fits = num_edges <= room && num_clusters <= clusters;
  const Padded out{memory.array<int64_t>(2 * room), room, memory.array<int64_t>(clusters), clusters,
                   memory.array<int64_t>(2)};
  int64_t* slot = memory.array<int64_t>(count);
  const int64_t size = InnerEdges::size(count, graph.num_nodes);
  uint32_t* order = self_loops ? nullptr : memory.array<uint32_t>(size);
  cuda::coarsen_padded_kernel(launch, on_device(graph, memory), memory.copy(cluster), self_loops, nullptr,
                              takes_part, slot, order, out, memory);
  CHECK(to_host(out.count, 2) == (std::vector<int64_t>{num_clusters, num_edges}));
  const auto padded = [&](std::vector<int64_t> values, int64_t size) {
    values.resize(size_t(fits ? int64_t(values.size()) : 0));
    values.resize(size_t(size), -1);
    return values;
  };
  CHECK(to_host(out.edges, room) == padded(expected.row, room));
  CHECK(to_host(out.edges + room, room) == padded(expected.col, room));
  CHECK(to_host(out.representative, clusters) == padded(smallest, clusters));
  CHECK(to_host(slot, count) == (fits ? expected.slot : padded({}, count)));
  if (self_loops) return;
  CHECK(to_host(order, size) == (fits ? plain_inner_order(graph.edges(), cluster, takes_part)
                                      : std::vector<uint32_t>(size_t(size), uint32_t(-1))));
}

void test_unique_edges(Random& random) {
  const Graph<float> graph = random_edges(random);
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const Edges edges = on_device(graph, memory);
  const int64_t bound = 1 + random.below(graph.num_nodes);
  std::vector<int64_t> cluster = random_ids(random, graph.num_nodes, 0, bound);
  for (int64_t c = 0; c < bound; ++c) cluster[size_t(c)] = c;  // no gaps
  const int64_t* device_cluster = memory.copy(cluster);

  std::vector<int64_t> smallest(static_cast<size_t>(bound));
  for (int64_t v = graph.num_nodes - 1; v >= 0; --v) smallest[size_t(cluster[size_t(v)])] = v;

  for (const bool self_loops : {false, true}) {
    const cuda::BetweenClusters view{device_cluster, self_loops};
    PlainEdges expected = plain_coarsen(graph.edges(), cluster, self_loops);
    const auto unique = [&]<class Id>(Id, bool with_slot) {
      return unique_edges<Id>(launch, edges, view, with_slot, memory, device_cluster, graph.num_nodes);
    };
    CHECK(unique(uint32_t(), true) == expected);
    CHECK(unique(uint64_t(), true) == expected);
    expected.slot.clear();
    CHECK(unique(uint32_t(), false) == expected);

    FoundOnDevice found{memory};
    cuda::coarsen_kernel(launch, edges, device_cluster, self_loops, nullptr, nullptr, nullptr, nullptr, found,
                         memory);
    CHECK(to_host(found.edges, found.num_edges) == expected.row);
    CHECK(to_host(found.edges + found.num_edges, found.num_edges) == expected.col);
    CHECK(to_host(found.representative, found.num_clusters) == smallest);
    test_padded(random, launch, graph, cluster, self_loops, smallest);
  }
  CHECK(unique_edges<uint32_t>(launch, edges, cuda::WithoutDirection(), true, memory) ==
        plain_undirected(graph.edges()));

  CHECK(record.assertions.empty());
}

void test_sorted_pairs(Random& random) {
  const Graph<float> graph = sorted_and_symmetric(random_edges(random));
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const PlainEdges expected = plain_undirected(graph.edges());
  const int64_t num_pairs = int64_t(expected.row.size()), num_edges = int64_t(graph.row.size());
  int64_t* pairs = memory.array<int64_t>(2 * num_pairs);
  int64_t* slot = memory.array<int64_t>(num_edges);
  cuda::sorted_pairs_kernel(launch, on_device(graph, memory), num_pairs, pairs, slot, memory);
  const std::vector<int64_t> ends = to_host(pairs, 2 * num_pairs);
  CHECK(part(ends, 0, num_pairs) == expected.row && part(ends, num_pairs, 2 * num_pairs) == expected.col);
  CHECK(to_host(slot, num_edges) == expected.slot);
  CHECK(record.assertions.empty());
}

void test_partition(Random& random) {
  const Scratch memory(random());
  const int64_t num_nodes = random.of<int64_t>({0, 1, 33, 3000}), num_graphs = 1 + random.below(9);
  const std::vector<int64_t> graphs = random_ids(random, num_graphs, 0, 2);
  const std::vector<int64_t> batch = random_ids(random, num_nodes, -1, num_graphs + 1);
  std::vector<int64_t> order, others, number(static_cast<size_t>(num_nodes));
  for (int64_t v = 0; v < num_nodes; ++v) {
    const int64_t g = batch[size_t(v)];
    (g >= 0 && g < num_graphs && graphs[size_t(g)] ? order : others).push_back(v);
  }
  const int64_t num_wanted = int64_t(order.size());
  order.insert(order.end(), others.begin(), others.end());
  for (int64_t i = 0; i < num_nodes; ++i) number[size_t(order[size_t(i)])] = i;
  const Wanted wanted{memory.copy(graphs), num_graphs, memory.copy(batch)};
  int64_t* out = memory.array<int64_t>(num_nodes);
  int64_t* places = memory.array<int64_t>(num_nodes);
  cuda::partition_kernel(random_launcher(random), wanted, num_nodes, num_wanted, out, places, memory);
  CHECK(to_host(out, num_nodes) == order && to_host(places, num_nodes) == number);
  CHECK(record.assertions.empty());
  cuda::partition_kernel(random_launcher(random), wanted, num_nodes, num_wanted + 1, out, places, memory);
  CHECK(record.assertions.size() == (num_nodes > 0));
  record.assertions.clear();
}

void test_progress(Random& random) {
  const Levelled made =
      levelled([&](int64_t bound) { return random.below(bound); }, random.below(2), random.below(3));
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  Progress progress = made.progress();
  progress.edges = on_device(made.graph, memory);
  progress.coarse = on_device(made.coarse, memory);
  progress.cluster = memory.copy(made.cluster);
  progress.batch = memory.copy(made.batch);
  progress.representative = memory.copy(made.representative);
  progress.count = memory.copy(made.count);
  int64_t* sizes = memory.array<int64_t>(kNumProgressSizes);
  int64_t* shrinks = memory.array<int64_t>(made.num_graphs);
  int64_t* goes_on = memory.array<int64_t>(made.num_graphs);
  cuda::progress_kernel(launch, progress, sizes, shrinks, goes_on, memory);
  const PlainProgress found{to_host(sizes, kNumProgressSizes), to_host(shrinks, made.num_graphs),
                            to_host(goes_on, made.num_graphs)};
  CHECK(found == plain_progress(made));
  CHECK(record.assertions.empty());
}

// Ids out of range are asserted, and what has them is left out.
void test_bad_ids(Random& random) {
  Graph<float> graph = random_edges(random);
  if (graph.row.empty()) return;
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  Graph<float> good{{}, {}, {}, graph.num_nodes};
  std::vector<int64_t> cluster(size_t(graph.num_nodes), 0);
  for (size_t e = 0; e < graph.row.size(); ++e) {
    if (random.below(3) == 0) {
      (random.below(2) ? graph.row : graph.col)[e] =
          random.of<int64_t>({-1, graph.num_nodes, INT64_MIN, INT64_MAX});
    } else {
      good.row.push_back(graph.row[e]);
      good.col.push_back(graph.col[e]);
    }
  }
  const bool any_bad = good.row.size() < graph.row.size();
  const Edges edges = on_device(graph, memory);
  PlainEdges expected = plain_undirected(good.edges());
  expected.slot.clear();
  CHECK(unique_edges<uint32_t>(launch, edges, cuda::WithoutDirection(), false, memory) == expected);
  CHECK(record.assertions.empty() != any_bad);
  record.assertions.clear();

  const std::vector<float> scores(graph.row.size(), 1);
  float* total = memory.array<float>(1);
  int64_t* count = memory.array<int64_t>(1);
  cuda::mask_kernel(launch, edges, memory.copy(scores), memory.copy(cluster), 1, nullptr, nullptr, total,
                    count, memory);
  CHECK(*count == std::max<int64_t>(int64_t(good.row.size()), 1) && *total == float(*count));
  CHECK(record.assertions.empty() != any_bad);
  record.assertions.clear();

  cluster[size_t(random.below(graph.num_nodes))] =
      random.of<int64_t>({-2, graph.num_nodes, INT64_MIN, INT64_MAX});
  const Segments<> segments{memory.copy(cluster), graph.num_nodes, 1, graph.num_nodes};
  const std::vector<float> ones(size_t(graph.num_nodes), 1);
  float* sums = memory.array<float>(graph.num_nodes);
  cuda::reduce<uint32_t>(launch, segments, memory.copy(ones), Reduction::kSum, sums, memory);
  CHECK(sums[0] == float(graph.num_nodes - 1));
  CHECK(record.assertions.size() == 1);
  record.assertions.clear();
  launch(cuda::lift<float>, graph.num_nodes, segments, sums, memory.array<float>(graph.num_nodes));
  CHECK(record.assertions.size() == 1);
  record.assertions.clear();
  FoundOnDevice found{memory};
  const Edges none{nullptr, nullptr, 0, graph.num_nodes};
  cuda::coarsen_kernel(launch, none, segments.cluster, false, nullptr, nullptr, nullptr, nullptr, found,
                       memory);
  CHECK(record.assertions.size() == 1 && found.num_clusters == (graph.num_nodes > 1));
  record.assertions.clear();
  const Edges two{nullptr, nullptr, 0, 2};
  cuda::coarsen_kernel(launch, two, memory.copy<int64_t>({1, 1}), false, nullptr, nullptr, nullptr, nullptr,
                       found,
                       memory);  // nobody is in cluster 0
  CHECK(record.assertions.size() == 1);
  record.assertions.clear();
}

// ---------------------------------------------------------------------------------------------------
// segments

template <class Index, class T>
void test_segments(Random& random) {
  const int64_t rows = random.of<int64_t>({0, 1, 33, 300, random.below(500)}),
                width = random.of<int64_t>({1, 3, 16, 33});
  const int64_t num_clusters = 1 + random.below(60);
  const std::vector<int64_t> cluster = random_ids(random, rows, -1, num_clusters);
  const std::vector<T> x = random_values<T>(random, rows * width);
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const Segments<> segments{memory.copy(cluster), rows, width, num_clusters};
  const T* device_x = memory.copy(x);
  const std::vector<int64_t> sizes = plain_sizes(cluster, num_clusters);
  const int64_t cells = num_clusters * width;

  std::vector<Sum<T>> sums(size_t(cells), 0);
  plain_accumulate(cluster, x, width, sums, piece_of(launch));
  T* out = memory.array<T>(cells);
  cuda::reduce<Index>(launch, segments, device_x, Reduction::kSum, out, memory);
  CHECK(same_bits(out, rounded<T>(sums)));

  Sum<T>* tiled = memory.copy(std::vector<Sum<T>>(size_t(cells), 0));
  const int64_t cut = random.below(rows + 1);
  cuda::accumulate<Index>(launch, {segments.cluster, cut, width, num_clusters}, device_x, tiled, memory);
  cuda::accumulate<Index>(launch, {segments.cluster + cut, rows - cut, width, num_clusters},
                          device_x + cut * width, tiled, memory);
  std::vector<Sum<T>> expected_tiled(size_t(cells), 0);
  plain_accumulate(part(cluster, 0, cut), part(x, 0, cut * width), width, expected_tiled, piece_of(launch));
  plain_accumulate(part(cluster, cut, rows), part(x, cut * width, rows * width), width, expected_tiled,
                   piece_of(launch));
  CHECK(same_bits(tiled, expected_tiled));

  cuda::reduce<Index>(launch, segments, device_x, Reduction::kMean, out, memory);
  for (size_t at = 0; at < sums.size(); ++at) {
    sums[at] /= Sum<T>(std::max<int64_t>(sizes[at / size_t(width)], 1));
  }
  CHECK(same_bits(out, rounded<T>(sums)));

  const std::vector<T> tied = tied_values<T>(random, rows * width);
  const T* device_tied = memory.copy(tied);
  const auto [highest, first] = plain_maximum(cluster, tied, width, num_clusters);
  cuda::reduce<Index>(launch, segments, device_tied, Reduction::kMax, out, memory);
  CHECK(same_bits(out, highest));
  const std::vector<T> grad = random_values<T>(random, cells);
  T* grad_x = memory.array<T>(rows * width);
  cuda::maximum_backward<Index>(launch, segments, memory.copy(grad), device_tied, out, grad_x, memory);
  std::vector<T> expected(size_t(rows * width), T(0));
  for (size_t at = 0; at < first.size(); ++at) {
    if (first[at] >= 0) expected[size_t(first[at] * width) + at % size_t(width)] = grad[at];
  }
  CHECK(same_bits(grad_x, expected));

  T* lifted = memory.array<T>(rows * width);
  launch(cuda::lift<T>, rows * width, segments, memory.copy(grad), lifted);
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t c = cluster[size_t(i / width)];
    expected[size_t(i)] = c < 0 ? T(0) : grad[size_t(c * width + i % width)];
  }
  CHECK(same_bits(lifted, expected));

  int64_t* counted = memory.copy(std::vector<int64_t>(size_t(num_clusters), 0));
  launch(cuda::count_rows<int64_t>, rows, segments, counted);
  CHECK(to_host(counted, num_clusters) == sizes);
  CHECK(record.assertions.empty());
}

template <class Index, class T>
void test_mask(Random& random) {
  const Graph<float> graph = random_edges(random);
  const int64_t num_clusters = 1 + random.below(graph.num_nodes);
  const std::vector<int64_t> cluster = random_ids(random, graph.num_nodes, 0, num_clusters);
  const std::vector<T> scores = random_values<T>(random, int64_t(graph.row.size()));
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const Edges edges = on_device(graph, memory);
  T* total = memory.array<T>(num_clusters);
  int64_t* count = memory.array<int64_t>(num_clusters);
  bool* takes_part = random.below(2) ? memory.array<bool>(edges.count) : nullptr;
  for (int64_t e = 0; takes_part && e < edges.count; ++e) takes_part[e] = random.below(3) > 0;
  const PlainMask<T> plain =
      plain_mask(graph.edges(), scores, cluster, num_clusters, takes_part, piece_of(launch));
  cuda::mask<Index>(launch, edges, memory.copy(scores), memory.copy(cluster), num_clusters, takes_part, total,
                    count, memory);
  CHECK(same_bits(total, plain.total));
  CHECK(to_host(count, num_clusters) == plain.count);
  const uint32_t* order = memory.copy(plain_inner_order(graph.edges(), cluster, takes_part));
  cuda::mask_kernel(launch, edges, memory.copy(scores), memory.copy(cluster), num_clusters, takes_part, order,
                    total, count, memory);
  CHECK(same_bits(total, plain.total));
  CHECK(to_host(count, num_clusters) == plain.count);

  T* grad_scores = memory.array<T>(edges.count);
  launch(cuda::mask_backward<T>, edges.count, edges, memory.copy(cluster), num_clusters, takes_part, total,
         grad_scores);
  std::vector<T> expected;
  for (size_t e = 0; e < graph.row.size(); ++e) {
    const int64_t c = cluster[size_t(graph.row[e])];
    const bool is_inner = (!takes_part || takes_part[e]) && c == cluster[size_t(graph.col[e])];
    expected.push_back(is_inner ? plain.total[size_t(c)] : T(0));
  }
  CHECK(same_bits(grad_scores, expected));
  CHECK(record.assertions.empty());
}

// ------------------------------------------------------------------------------------------------------
// pairs

template <class Index, class T>
void test_pairs(Random& random) {
  // Widths of a lane's columns in part, and of more than it holds.
  const int64_t width = random.of<int64_t>({1, 31, 33, cuda::kHeldColumns * cuda::kWarp + 3});
  const int64_t num_nodes = random.of<int64_t>({1, 4, 60});
  const int64_t num_pairs = random.of<int64_t>({0, 1, 40, 300, (int64_t(1) << Launcher().piece_bits) + 5});
  std::vector<int64_t> first = random_ids(random, num_pairs, 0, num_nodes);
  if (random.below(2)) std::sort(first.begin(), first.end());  // pairs that share a row
  const std::vector<int64_t> second = random_ids(random, num_pairs, 0, num_nodes);
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const Pairs pairs{memory.copy(first), memory.copy(second), num_pairs, num_nodes};
  const std::vector<T> exact = small_integers<T>(random, num_nodes * width),
                       weight = small_integers<T>(random, width);
  const std::vector<T> h = random_values<T>(random, num_nodes * width),
                       grad = small_integers<T>(random, num_pairs);
  const std::vector<T> grad_product = random_values<T>(random, num_pairs * width);

  std::vector<T> dot, product;
  std::vector<Sum<T>> grad_weight(size_t(width), 0), grad_exact(exact.size(), 0);
  for (size_t p = 0; p < first.size(); ++p) {
    Sum<T> sum = 0;
    for (int64_t k = 0; k < width; ++k) {
      const size_t i = size_t(first[p] * width + k), j = size_t(second[p] * width + k);
      sum += Sum<T>(exact[i]) * Sum<T>(weight[size_t(k)]) * Sum<T>(exact[j]);
      product.push_back(T(Sum<T>(h[i]) * Sum<T>(h[j])));
      grad_weight[size_t(k)] += Sum<T>(grad[p]) * Sum<T>(exact[i]) * Sum<T>(exact[j]);
    }
    dot.push_back(T(sum));
  }
  T* out = memory.array<T>(num_pairs);
  const int64_t stretch = random.of<int64_t>({1, 3, cuda::kWarp});
  launch(cuda::pair_dot<T>, (num_pairs + stretch - 1) / stretch * cuda::kWarp, pairs, memory.copy(exact),
         memory.copy(weight), width, stretch, out);
  CHECK(same_bits(out, dot));
  T* tile = memory.array<T>(num_pairs * width);
  launch(cuda::pair_product<T>, num_pairs * width, pairs, memory.copy(h), width, tile);
  CHECK(same_bits(tile, product));

  plain_both_ends(
      first, second, exact, width, [&](int64_t p, int64_t) { return Sum<T>(grad[size_t(p)]); }, grad_exact,
      piece_of(launch));
  for (size_t at = 0; at < grad_exact.size(); ++at) grad_exact[at] *= Sum<T>(weight[at % size_t(width)]);
  T* out_h = memory.array<T>(num_nodes * width);
  T* out_weight = memory.array<T>(width);
  cuda::pair_dot_backward<Index>(launch, pairs, memory.copy(grad), memory.copy(exact), memory.copy(weight),
                                 width, out_h, out_weight, memory);
  CHECK(same_bits(out_h, rounded<T>(grad_exact)));
  CHECK(same_bits(out_weight, rounded<T>(grad_weight)));

  std::vector<Sum<T>> grad_h(h.begin(), h.end());
  Sum<T>* sums = memory.copy(grad_h);
  const int64_t cut = random.below(num_pairs + 1);
  const T* device_grad = memory.copy(grad_product);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, cut), {cut, num_pairs}}) {
    cuda::pair_product_backward<Index>(launch,
                                       {pairs.first + begin, pairs.second + begin, end - begin, num_nodes},
                                       device_grad + begin * width, memory.copy(h), width, sums, memory);
    plain_both_ends(
        part(first, begin, end), part(second, begin, end), h, width,
        [&](int64_t p, int64_t k) { return Sum<T>(grad_product[size_t((begin + p) * width + k)]); }, grad_h,
        piece_of(launch));
  }
  CHECK(same_bits(sums, grad_h));
  CHECK(record.assertions.empty());
}

template <class T>
void test_dropout(Random& random) {
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const int64_t count = random.below(1500), first = random.of<int64_t>({0, 1, 6, (int64_t(1) << 48) + 3});
  const bool relu = random.below(2);
  const int64_t seed = int64_t(random()), dropped = random.of<int64_t>({0, 20000, 1 << 16});
  const std::vector<T> x = tied_values<T>(random, count);
  const std::vector<T> expected =
      plain_dropout(x, uint64_t(seed), uint64_t(first), dropped, Sum<T>(1.44), relu);
  const Dropout<Sum<T>> dropout{int32_t(dropped), Sum<T>(1.44), relu};
  T* out = memory.copy(x);
  cuda::dropout_kernel(launch, dropout, memory.copy(std::vector<int64_t>{seed}), first, count,
                       static_cast<const T*>(out), out);
  CHECK(same_bits(out, expected));
}

// Sums of a tile that half precision could not hold; that of all tiles it can.
template <class T>
void test_half_tiles() {
  const Scratch memory;
  const Launcher launch{nullptr};
  const int64_t tile = int64_t(piece_of(launch)), num_pairs = 2 * tile;
  const int64_t* nodes = memory.copy(std::vector<int64_t>(size_t(num_pairs), 0));
  std::vector<T> grad(size_t(num_pairs), T(12.0));
  std::fill(grad.begin() + tile, grad.end(), T(-12.0));
  grad[0] = T(13.0);
  const T* one = memory.copy(std::vector<T>{T(1.0)});
  T* grad_h = memory.array<T>(1);
  T* grad_weight = memory.array<T>(1);
  cuda::pair_dot_backward_kernel(launch, Pairs{nodes, nodes, num_pairs, 1}, memory.copy(grad), one, one, 1,
                                 grad_h, grad_weight, memory);
  CHECK(float(*grad_weight) == 1 && float(*grad_h) == 2);

  // Of many nodes, each in a pair with itself.
  std::vector<int64_t> ids(size_t(num_pairs), 0);
  std::iota(ids.begin(), ids.end(), 0);
  const int64_t* own = memory.copy(ids);
  std::fill(grad.begin(), grad.begin() + tile, T(120.0));
  std::fill(grad.begin() + tile, grad.end(), T(-120.0));
  grad[0] = T(121.0);
  T* grad_nodes = memory.array<T>(num_pairs);
  cuda::pair_dot_backward_kernel(launch, Pairs{own, own, num_pairs, num_pairs}, memory.copy(grad),
                                 memory.copy(std::vector<T>(size_t(num_pairs), T(16.0))), one, 1, grad_nodes,
                                 grad_weight, memory);
  CHECK(float(*grad_weight) == 256 && float(grad_nodes[0]) == 32 * 121);
}

void test_bad_pairs(Random& random) {
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  const int64_t bad = random.of<int64_t>({-1, 3, INT64_MIN, INT64_MAX});
  std::vector<int64_t> first{0, 1, 2}, second{1, 2, 0};
  (random.below(2) ? first : second)[1] = bad;
  const Pairs pairs{memory.copy(first), memory.copy(second), 3, 3};
  const float* ones = memory.copy(std::vector<float>(3, 1));
  float* out = memory.array<float>(3);
  cuda::pair_dot_kernel(launch, pairs, ones, ones, 1, out);
  CHECK(to_host(out, 3) == (std::vector<float>{1, 0, 1}));
  CHECK(!record.assertions.empty());
  record.assertions.clear();
  launch(cuda::pair_product<float>, 3, pairs, ones, 1, out);
  CHECK(to_host(out, 3) == (std::vector<float>{1, 0, 1}));
  CHECK(!record.assertions.empty());
  record.assertions.clear();
  float* grad_weight = memory.array<float>(1);
  cuda::pair_dot_backward<uint32_t>(launch, pairs, ones, ones, ones, 1, out, grad_weight, memory);
  CHECK(out[0] == 2 && out[1] == 1 && out[2] == 1 && *grad_weight == 2);
  CHECK(!record.assertions.empty());
  record.assertions.clear();
}

template <class Index, class T>
void test_one(Random& random) {
  test_segments<Index, T>(random);
  test_mask<Index, T>(random);
  test_pairs<Index, T>(random);
  test_dropout<T>(random);
}

}  // namespace
}  // namespace gpn::test

int main(int argc, char** argv) {
  using namespace gpn::test;
  test_half_tiles<Half>();
  test_half_tiles<BFloat16>();
  return for_seeds(argc, argv, 60, [](emulation::Random& random, uint64_t seed) {
    switch (seed / emulation::kPolicies % 5) {
      case 0: test_one<uint32_t, float>(random); break;
      case 1: test_one<uint32_t, double>(random); break;
      case 2: test_one<uint32_t, ThirdDtype>(random); break;
      case 3: test_one<uint32_t, FourthDtype>(random); break;
      case 4: test_one<uint64_t, float>(random); break;
    }
    test_unique_edges(random);
    test_sorted_pairs(random);
    test_partition(random);
    test_progress(random);
    test_bad_ids(random);
    test_bad_pairs(random);
  });
}
