// Parses one random graph on one thread, for callgrind to count. Argument: the number of nodes.
#include <cstdio>
#include <cstdlib>

#include "check.h"
#include "cpu/components.h"

namespace {

struct OneThread {
  int64_t tasks(int64_t) const { return 1; }
  template <class F>
  void operator()(int64_t, const F& f) const {
    f(0);
  }
};

}  // namespace

// With C linkage and out of line, so that callgrind can be told to count inside it alone.
extern "C" __attribute__((noinline)) void parse_once(const gpn::Edges& edges, const float* scores,
                                                     int32_t* parent, int64_t* cluster) {
  using namespace gpn::cpu;
  choices(OneThread(), edges, scores, cluster, parent, [] { return static_cast<int64_t*>(nullptr); });
  connect_choices(OneThread(), reinterpret_cast<const int32_t*>(cluster), edges.num_nodes, parent);
  label_components(OneThread(), parent, edges.num_nodes, cluster);
}

int main(int, char** arguments) {
  const int64_t num_nodes = std::atoll(arguments[1]);
  std::mt19937_64 random(0);
  gpn::test::Graph<float> graph{{}, {}, {}, num_nodes};
  std::vector<std::vector<std::pair<int64_t, float>>> neighbours(static_cast<size_t>(num_nodes));
  for (int64_t e = 0; e < 2 * num_nodes; ++e) {
    const int64_t u = int64_t(random() % uint64_t(num_nodes)), v = int64_t(random() % uint64_t(num_nodes));
    const float score = float(random() >> 40);
    neighbours[size_t(u)].emplace_back(v, score);
    neighbours[size_t(v)].emplace_back(u, score);
  }
  for (int64_t v = 0; v < num_nodes; ++v) {
    for (const auto& [neighbour, score] : neighbours[size_t(v)]) {
      graph.row.push_back(v);
      graph.col.push_back(neighbour);
      graph.scores.push_back(score);
    }
  }
  std::vector<int32_t> parent(static_cast<size_t>(num_nodes));
  std::vector<int64_t> cluster(static_cast<size_t>(num_nodes));
  parse_once(graph.edges(), graph.scores.data(), parent.data(), cluster.data());
  std::printf("%lld clusters\n",
              static_cast<long long>(*std::max_element(cluster.begin(), cluster.end()) + 1));
}
