// The CUDA kernels of parse, dominant and components, run by their own launch code on the emulated device:
// equal to the CPU library, bit for bit, and to plain solvers.
#include <cuda_runtime.h>
//
#include <limits>

#include "check.h"
#include "cpu/parse.h"
#include "cuda/parse.cuh"
#include "device.h"
#include "seeds.h"

namespace gpn::test {
namespace {

using cuda::Launcher;
using emulation::Random;
using emulation::record;

// ----------------------------------------------------------------------------------------------- random
// input

Launcher random_launcher(Random& random) {
  const int block_size = random.of<int>({32, 64, 96, 256, 256, 1024});
  // Few blocks make the grid-stride loops iterate.
  return {nullptr, block_size, random.of<int64_t>({1, 2, 3, cuda::kMaxBlocks})};
}

double random_score(Random& random, int style) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (style) {
    case 0: return 1;  // all tie
    case 1: {          // many tie, both zeros among them
      const double value = double(random.below(5) - 2) / 2;
      return value == 0 && random.below(2) ? -0.0 : value;
    }
    case 2: return double(random.below(2'000'001) - 1'000'000) / 7;  // few tie, both signs
    case 3: return -1e-3 * double(1 + random.below(50));             // negative
    default:
      return random.of<double>({-infinity, infinity, -0.0, 0.0, -1, 1, 1e-40, -1e-40, 6e-8, -6e-8, 6e4, -6e4,
                                std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()});
  }
}

// Shapes that need something of a kernel: rows longer than a warp, rows that end inside one, long chains,
// nodes without edges.
template <class Score>
Graph<Score> shaped_graph(Random& random) {
  Graph<Score> graph{{}, {}, {}, 0};
  const auto add = [&](int64_t row, int64_t col) {
    graph.row.push_back(row);
    graph.col.push_back(col);
  };
  const int64_t n = graph.num_nodes = random.of<int64_t>({1, 2, 31, 33, 100, 400, 1 + random.below(900)});
  switch (random.below(8)) {
    case 0:
      if (random.below(2)) graph.num_nodes = 0;  // nothing at all; else nodes without edges
      break;
    case 1:  // a path
    case 2:  // a ring
      for (int64_t v = 0; v + 1 < n; ++v) add(v, v + 1), add(v + 1, v);
      if (random.below(2)) add(n - 1, 0);
      break;
    case 3:  // a star
      for (int64_t v = 1; v < n; ++v) add(0, v), add(v, 0);
      break;
    case 4:  // a few long rows
      for (int64_t k = 0; k < 600; ++k) add(random.below(std::min<int64_t>(n, 3)), random.below(n));
      break;
    case 5:  // self-loops
      for (int64_t v = 0; v < n; ++v) add(v, v), add(v, random.below(n));
      break;
    default: {
      const int64_t m = random.of<int64_t>({1, 31, 32, 33, 64, n, 3 * n, random.below(2000)});
      for (int64_t k = 0; k < m; ++k) add(random.below(n), random.below(n));
    }
  }
  if (random.below(2)) {  // rename the nodes
    std::vector<int64_t> name(size_t(graph.num_nodes));
    for (size_t v = 0; v < name.size(); ++v) {
      name[v] = int64_t(v);
      std::swap(name[v], name[size_t(random.below(int64_t(v) + 1))]);
    }
    for (int64_t& v : graph.row) v = name[size_t(v)];
    for (int64_t& v : graph.col) v = name[size_t(v)];
  }
  std::vector<size_t> order(graph.row.size());
  std::iota(order.begin(), order.end(), size_t(0));
  const int64_t arrangement = random.below(3);
  if (arrangement == 0) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return graph.row[a] < graph.row[b]; });
  } else if (arrangement == 1) {
    for (size_t i = 1; i < order.size(); ++i)
      std::swap(order[i], order[size_t(random.below(int64_t(i) + 1))]);
  }
  Graph<Score> arranged{{}, {}, {}, graph.num_nodes};
  const int style = int(random.below(5));
  for (const size_t e : order) {
    arranged.row.push_back(graph.row[e]);
    arranged.col.push_back(graph.col[e]);
    arranged.scores.push_back(Score(random_score(random, style)));
  }
  return arranged;
}

// A graph in device memory.
template <class Score>
struct OnDevice {
  OnDevice(const Graph<Score>& graph, const Scratch& memory)
      : edges{memory.copy(graph.row), memory.copy(graph.col), int64_t(graph.row.size()), graph.num_nodes},
        scores(memory.copy(graph.scores)) {}
  Edges edges;
  const Score* scores;
};

// ----------------------------------------------------------------------------------------------- whole
// operators

template <class Node>
std::vector<int64_t> parse_cuda(const Launcher& launch, const Edges& edges, const auto* scores, Form form,
                                int64_t first, const Scratch& memory) {
  int64_t* cluster = memory.array<int64_t>(edges.num_nodes);
  cuda::label_choices<Node>(launch, edges, scores, form, first, cluster, memory);
  return to_host(cluster, edges.num_nodes);
}

template <class Node>
std::vector<int64_t> components_cuda(const Launcher& launch, const Edges& edges, const Scratch& memory) {
  int64_t* label = memory.array<int64_t>(edges.num_nodes);
  cuda::label_edges<Node>(launch, edges, label, memory);
  return to_host(label, edges.num_nodes);
}

template <class Score>
void test_operators(Random& random) {
  const Graph<Score> graph = shaped_graph<Score>(random);
  const Launcher launch = random_launcher(random);
  const Form form = random.of<Form>({Form::kAutomatic, Form::kPacked, Form::kWide});
  const int64_t count = int64_t(graph.row.size());
  // Around the last id that fits a packed key, and far past it.
  const int64_t first =
      random.of<int64_t>({0, 0, 1000, kPackedEdges - count, kPackedEdges - count + 1, int64_t(1) << 40});
  const Scratch memory(random());
  const OnDevice<Score> device(graph, memory);

  int64_t* kept = memory.array<int64_t>(graph.num_nodes);
  cuda::dominant_kernel(launch, device.edges, device.scores, form, first, kept, memory);
  const std::vector<int64_t> dominant = to_host(kept, graph.num_nodes), plain = plain_dominant(graph);
  for (size_t v = 0; v < plain.size(); ++v) CHECK(dominant[v] == (plain[v] < 0 ? -1 : plain[v] + first));
  const std::vector<int64_t> cluster = plain_parse(graph);
  CHECK(parse_cuda<int32_t>(launch, device.edges, device.scores, form, first, memory) == cluster);
  CHECK(parse_cuda<int64_t>(launch, device.edges, device.scores, form, first, memory) == cluster);
  const std::vector<int64_t> component = plain_components(graph.row, graph.col, graph.num_nodes);
  CHECK(components_cuda<int32_t>(launch, device.edges, memory) == component);
  CHECK(components_cuda<int64_t>(launch, device.edges, memory) == component);
  CHECK(record.assertions.empty());

  // The CPU library gives the same bits.
  const Threads threads{1 + random.below(3)};
  std::vector<int64_t> on_cpu(plain.size(), -7), choice(on_cpu), ids(on_cpu), label(on_cpu);
  std::vector<int32_t> parent(plain.size());
  const auto wide = [&] { return ids.data(); };
  CHECK(cpu::dominant(threads, graph.edges(), graph.scores.data(), KeepEdge{first}, form, first,
                      on_cpu.data(), wide) == cpu::Sweep::kDone);
  CHECK(on_cpu == dominant);
  CHECK(cpu::dominant(threads, graph.edges(), graph.scores.data(), KeepColumn{graph.col.data()}, form, first,
                      choice.data(), wide) == cpu::Sweep::kDone);
  cpu::connect_choices(threads, choice.data(), graph.num_nodes, parent.data());
  cpu::label_components(threads, parent.data(), graph.num_nodes, label.data());
  CHECK(label == cluster);
  cpu::connect_edges(threads, graph.edges(), parent.data());
  cpu::label_components(threads, parent.data(), graph.num_nodes, label.data());
  CHECK(label == component);
}

// 8 bytes a node and CUB's own storage, in which the emulation counts every sixteenth item.
void test_scratch(Random& random) {
  Graph<float> graph = shaped_graph<float>(random);
  const Scratch inputs(random());
  const OnDevice<float> device(graph, inputs);
  int64_t* cluster = inputs.array<int64_t>(graph.num_nodes);
  const Scratch memory(random());
  const Launcher launch = random_launcher(random);
  cuda::parse_kernel(launch, device.edges, device.scores, cluster, memory);
  CHECK(memory.total <= 9 * graph.num_nodes + 1024);
}

// An id out of range is asserted on the device, and the edge left out: the result is that of the other edges.
void test_bad_ids(Random& random) {
  Graph<float> graph = shaped_graph<float>(random);
  if (graph.row.empty()) return;
  Graph<float> good{{}, {}, {}, graph.num_nodes};
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> id_of_good;
  for (size_t e = 0; e < graph.row.size(); ++e) {
    if (random.below(3) == 0) {
      (random.below(2) ? graph.row : graph.col)[e] =
          random.of<int64_t>({-1, graph.num_nodes, lowest, highest});
      continue;
    }
    good.row.push_back(graph.row[e]);
    good.col.push_back(graph.col[e]);
    good.scores.push_back(graph.scores[e]);
    id_of_good.push_back(int64_t(e));
  }
  const bool any_bad = good.row.size() < graph.row.size();
  const Launcher launch = random_launcher(random);
  const Scratch memory(random());
  const OnDevice<float> device(graph, memory);
  for (const Form form : {Form::kPacked, Form::kWide}) {
    int64_t* kept = memory.array<int64_t>(graph.num_nodes);
    cuda::dominant_kernel(launch, device.edges, device.scores, form, 0, kept, memory);
    CHECK(record.assertions.empty() != any_bad);
    std::vector<int64_t> expected = plain_dominant(good);
    for (int64_t& edge : expected) edge = edge < 0 ? -1 : id_of_good[size_t(edge)];
    CHECK(to_host(kept, graph.num_nodes) == expected);
    record.assertions.clear();
  }
  CHECK(components_cuda<int32_t>(launch, device.edges, memory) ==
        plain_components(good.row, good.col, good.num_nodes));
  CHECK(record.assertions.empty() != any_bad);
  record.assertions.clear();
}

// NaN is the lowest score of all: it dominates only a row of NaN, and there the lowest id wins.
template <class Score>
void test_nan(Random& random) {
  Graph<Score> graph = shaped_graph<Score>(random), finite = graph;
  for (size_t e = 0; e < graph.row.size(); ++e) {
    finite.scores[e] = Score(double(random.below(3)));
    graph.scores[e] =
        random.below(9) == 0 ? Score(-std::numeric_limits<double>::infinity()) : finite.scores[e];
    finite.scores[e] = Score(std::isinf(float(graph.scores[e])) ? -1.0 : double(finite.scores[e]));
    if (random.below(2)) {
      graph.scores[e] = Score(random.of<double>({1, -1}) * std::numeric_limits<double>::quiet_NaN());
      finite.scores[e] = Score(-2.0);
    }
  }
  const Launcher launch = random_launcher(random);
  const Scratch memory(random());
  const OnDevice<Score> device(graph, memory);
  for (const Form form : {Form::kPacked, Form::kWide}) {
    int64_t* kept = memory.array<int64_t>(graph.num_nodes);
    cuda::dominant_kernel(launch, device.edges, device.scores, form, 0, kept, memory);
    CHECK(to_host(kept, graph.num_nodes) == plain_dominant(finite));
  }
  CHECK(record.assertions.empty());
}

// The lowest key that an edge can have, NaN with the last id that fits, is still an edge.
void test_lowest_key() {
  const Scratch memory;
  const OnDevice<float> device({{0}, {1}, {std::numeric_limits<float>::quiet_NaN()}, 2}, memory);
  int64_t* kept = memory.array<int64_t>(2);
  for (const Form form : {Form::kPacked, Form::kWide}) {
    const int64_t first = kPackedEdges - 1;
    cuda::dominant_kernel(Launcher{nullptr}, device.edges, device.scores, form, first, kept, memory);
    CHECK(to_host(kept, 2) == (std::vector<int64_t>{first, -1}));
  }
}

// --------------------------------------------------------------------------------------------- kernels alone

void test_kernels_alone(Random& random) {
  const Launcher launch = random_launcher(random);
  const int64_t n = random.of<int64_t>({1, 31, 32, 33, 500, 1 + random.below(3000)});
  const Scratch memory(random());

  uint64_t* filled = memory.array<uint64_t>(n);
  launch(cuda::fill<uint64_t>, n, filled, n, 7);
  CHECK(to_host(filled, n) == std::vector<uint64_t>(size_t(n), 7));

  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(random.below(1000) - 3);
  int64_t* largest = memory.copy<int64_t>({random.below(1200)});
  const int64_t expected = std::max(*largest, *std::max_element(ids.begin(), ids.end()));
  launch(cuda::raise_largest<int64_t, cuda::AnyId>, n, memory.copy(ids), n, cuda::AnyId(), largest);
  CHECK(*largest == expected);

  std::vector<int64_t> neighbour;
  for (int64_t v = 0; v < n; ++v) neighbour.push_back(random.below(n + 1) - 1);
  const int64_t* choices = memory.copy(neighbour);
  std::vector<int64_t> position(size_t(n), 0);
  std::iota(position.begin(), position.end(), int64_t(0));
  uint64_t* keys = memory.array<uint64_t>(n);
  int32_t* parent = memory.array<int32_t>(n);
  launch(cuda::start_nodes<int32_t>, n, n, keys, parent);
  for (int64_t v = 0; v < n; ++v) CHECK(keys[v] == 0 && parent[v] == v);
  launch(cuda::decode_wide<KeepColumn, cuda::HookChoice<int32_t>>, n, memory.copy(position), n,
         KeepColumn{choices}, 0, cuda::HookChoice<int32_t>{parent});
  std::vector<int64_t> row, col;
  for (int64_t v = 0; v < n; ++v) {
    CHECK(parent[v] <= v);
    if (neighbour[size_t(v)] >= 0) row.push_back(v), col.push_back(neighbour[size_t(v)]);
  }
  const std::vector<int64_t> label = plain_components(row, col, n);
  cuda::scan<int32_t>(launch, n, cuda::IsRoot<int32_t>{parent}, cuda::MarkRoot<int32_t>{parent}, memory);
  int64_t labels_so_far = 0;
  for (int64_t v = 0; v < n; ++v) {
    const bool is_root = label[size_t(v)] == labels_so_far;
    labels_so_far += is_root;
    CHECK(is_root ? parent[v] == ~label[size_t(v)] : parent[v] >= 0);
  }
  int64_t* labels = memory.array<int64_t>(n);
  launch(cuda::settle_labels<int32_t>, n, parent, n, labels);
  CHECK(to_host(labels, n) == label);

  launch(cuda::start_alone<int32_t>, n, n, parent);
  for (int64_t v = 0; v < n; ++v) CHECK(parent[v] == v);
}

// Decoding an id takes no part in the sweep, so a first edge past 2^32 shows in the wide form alone.
void test_decoding(Random& random) {
  const Launcher launch = random_launcher(random);
  const Scratch memory(random());
  const int64_t first = random.of<int64_t>({0, 5, (int64_t(1) << 33) + 1});
  const std::vector<int64_t> ids = {first, kNoEdge, first + 2, first + 1};
  int64_t* kept = memory.array<int64_t>(4);
  launch(cuda::decode_wide<KeepEdge, cuda::StoreKept>, 4, memory.copy(ids), 4, KeepEdge{first}, first,
         cuda::StoreKept{kept});
  CHECK(to_host(kept, 4) == (std::vector<int64_t>{first, -1, first + 2, first + 1}));
  const std::vector<int64_t> col = {30, 10, 20};
  launch(cuda::decode_wide<KeepColumn, cuda::StoreKept>, 4, memory.copy(ids), 4, KeepColumn{memory.copy(col)},
         first, cuda::StoreKept{kept});
  CHECK(to_host(kept, 4) == (std::vector<int64_t>{30, -1, 20, 10}));
}

// The same launch code decides the grid: as many threads as items, up to the most blocks, and no launch for
// nothing.
void test_grids() {
  emulation::clear();
  const Scratch memory;
  for (const int64_t items : {1, 255, 256, 257, 10'000}) {
    Launcher launch{nullptr};
    CHECK(launch.block_size == 256 && launch.max_blocks == 65536);
    int64_t* out = memory.array<int64_t>(items);
    launch(cuda::fill<int64_t>, items, out, items, 1);
    CHECK(record.threads == 256 && record.blocks == (items + 255) / 256);
    launch.max_blocks = 3;
    launch(cuda::fill<int64_t>, items, out, items, 2);
    CHECK(record.blocks == std::min<int64_t>((items + 255) / 256, 3));
    CHECK(to_host(out, items) == std::vector<int64_t>(size_t(items), 2));
  }
  const int64_t launches = record.launches;
  Launcher{nullptr}(cuda::fill<int64_t>, 0, nullptr, 0, 0);
  CHECK(record.launches == launches);
}

// As many launches as docs/cuda.md says, CUB's kernel before a scan aside.
void test_launches() {
  const Scratch memory;
  const Graph<float> graph{{0, 1, 2}, {1, 2, 0}, {1, 2, 3}, 3};
  const OnDevice<float> device(graph, memory);
  const Launcher launch{nullptr};
  int64_t* kept = memory.array<int64_t>(3);
  const auto launches_of = [](const auto& call) {
    emulation::clear();
    call();
    return record.launches;
  };
  const auto dominant = [&](Form form) {
    cuda::dominant_kernel(launch, device.edges, device.scores, form, 0, kept, memory);
  };
  CHECK(launches_of([&] { dominant(Form::kAutomatic); }) == 3);
  CHECK(launches_of([&] { cuda::parse_kernel(launch, device.edges, device.scores, kept, memory); }) == 5);
  CHECK(launches_of([&] { dominant(Form::kWide); }) == 5);
  CHECK(launches_of([&] { components_cuda<int32_t>(launch, device.edges, memory); }) == 4);
}

template <class Score>
void test_one(Random& random) {
  test_operators<Score>(random);
  test_nan<Score>(random);
}

}  // namespace
}  // namespace gpn::test

int main(int argc, char** argv) {
  using namespace gpn::test;
  test_grids();
  test_launches();
  test_lowest_key();
  return for_seeds(argc, argv, 300, [](emulation::Random& random, uint64_t seed) {
    switch (seed / emulation::kPolicies % 4) {
      case 0: test_one<float>(random); break;
      case 1: test_one<double>(random); break;
      case 2: test_one<ThirdDtype>(random); break;
      case 3: test_one<FourthDtype>(random); break;
    }
    test_bad_ids(random);
    test_kernels_alone(random);
    test_decoding(random);
    test_scratch(random);
  });
}
