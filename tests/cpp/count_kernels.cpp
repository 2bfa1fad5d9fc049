// Runs one kernel on one random graph and one thread, for callgrind to count. Arguments: parse, unsorted,
// components or coarsen; the number of nodes.
#include <cstdlib>
#include <string>

#include "check.h"
#include "cpu/coarsen.h"
#include "cpu/parse.h"

namespace {

using namespace gpn;
using gpn::test::Graph;

struct OneThread {
  int64_t tasks(int64_t) const { return 1; }
  int64_t shares(int64_t) const { return 1; }
  template <class F>
  void operator()(int64_t, const F& f) const {
    f(0);
  }
};

void parse(const Graph<float>& graph, std::vector<int64_t>& cluster) {
  std::vector<int32_t> parent(cluster.size());
  const auto no_scratch = [] { return static_cast<int64_t*>(nullptr); };
  cpu::choices(OneThread(), graph.edges(), graph.scores.data(), cluster.data(), parent.data(), no_scratch);
  cpu::connect_choices(OneThread(), reinterpret_cast<const int32_t*>(cluster.data()), graph.num_nodes,
                       parent.data());
  cpu::label_components(OneThread(), parent.data(), graph.num_nodes, cluster.data());
}

void components(const Graph<float>& graph, std::vector<int64_t>& label) {
  std::vector<int32_t> parent(label.size());
  cpu::all_ids_fit(OneThread(), graph.edges());
  cpu::connect_edges(OneThread(), graph.edges(), parent.data());
  cpu::label_components(OneThread(), parent.data(), graph.num_nodes, label.data());
}

void coarsen(const Graph<float>& graph, const std::vector<int64_t>& cluster) {
  const OneThread parallel;
  std::vector<int32_t> narrow(cluster.size());
  const int64_t count = cpu::narrow_clusters(parallel, cluster.data(), graph.num_nodes, narrow.data());
  std::vector<int64_t> representative(static_cast<size_t>(count));
  cpu::smallest_nodes(parallel, narrow.data(), graph.num_nodes, count, representative.data());
  const cpu::BetweenClusters<int32_t> view{narrow.data(), false};
  const cpu::EdgeLayout layout(int64_t(graph.row.size()), count, false);
  std::vector<uint32_t> words(graph.row.size());
  cpu::UniqueEdges<OneThread, cpu::BetweenClusters<int32_t>, uint32_t> unique(parallel, graph.edges(), view,
                                                                              layout, words.data());
  CHECK(layout.word_bits() <= 32 && unique.scatter(nullptr));
  std::vector<char> spare;
  const int64_t edges = unique.sort([&](size_t bytes) {
    spare.resize(bytes);
    return static_cast<void*>(spare.data());
  });
  std::vector<int64_t> row(static_cast<size_t>(edges)), col(static_cast<size_t>(edges));
  unique.write(row.data(), col.data(), nullptr);
}

// 2n undirected edges, both directions, equally scored.
Graph<float> random_undirected(int64_t num_nodes, bool sorted) {
  std::mt19937_64 random(0);
  Graph<float> drawn{{}, {}, {}, num_nodes};
  for (int64_t e = 0; e < 2 * num_nodes; ++e) {
    const int64_t u = int64_t(random() % uint64_t(num_nodes)), v = int64_t(random() % uint64_t(num_nodes));
    const float score = float(random() >> 40);
    drawn.row.insert(drawn.row.end(), {u, v});
    drawn.col.insert(drawn.col.end(), {v, u});
    drawn.scores.insert(drawn.scores.end(), {score, score});
  }
  if (!sorted) return drawn;
  std::vector<size_t> order(drawn.row.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return drawn.row[a] < drawn.row[b]; });
  Graph<float> graph{{}, {}, {}, num_nodes};
  for (const size_t e : order) {
    graph.row.push_back(drawn.row[e]);
    graph.col.push_back(drawn.col[e]);
    graph.scores.push_back(drawn.scores[e]);
  }
  return graph;
}

}  // namespace

// With C linkage and out of line, so that callgrind can be told to count inside it alone.
extern "C" __attribute__((noinline)) void counted(const std::string& kernel, const Graph<float>& graph,
                                                  std::vector<int64_t>& cluster) {
  if (kernel == "components") {
    components(graph, cluster);
  } else if (kernel == "coarsen") {
    coarsen(graph, cluster);
  } else {
    parse(graph, cluster);
  }
}

int main(int, char** arguments) {
  const std::string kernel = arguments[1];
  const Graph<float> graph = random_undirected(std::atoll(arguments[2]), kernel != "unsorted");
  std::vector<int64_t> cluster(static_cast<size_t>(graph.num_nodes));
  if (kernel == "coarsen") parse(graph, cluster);
  counted(kernel, graph, cluster);
}
