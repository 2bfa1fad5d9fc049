// What the C++ tests share: a check that says where it failed, executors, and plain solvers to compare with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/dominance.h"

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

namespace gpn::test {

// Real threads, one a task, and tasks as small as one item: every boundary between pieces is met at small
// sizes.
struct Threads {
  int64_t count;

  int64_t tasks(int64_t size) const { return std::clamp<int64_t>(size, 1, count); }
  int64_t shares(int64_t size) const { return tasks(size); }

  template <class F>
  void operator()(int64_t tasks, const F& f) const {
    std::vector<std::thread> threads;
    for (int64_t t = 1; t < tasks; ++t) threads.emplace_back([&f, t] { f(t); });
    f(0);
    for (std::thread& thread : threads) thread.join();
  }
};

template <class Score>
struct Graph {
  std::vector<int64_t> row, col;
  std::vector<Score> scores;
  int64_t num_nodes;

  Edges edges() const { return {row.data(), col.data(), int64_t(row.size()), num_nodes}; }
};

// Few distinct scores, so that ties are common; both signs and both zeros among them.
template <class Score>
Graph<Score> random_graph(std::mt19937_64& random, int64_t num_nodes, int64_t num_edges, bool sorted) {
  Graph<Score> graph{{}, {}, {}, num_nodes};
  for (int64_t e = 0; e < num_edges; ++e) {
    graph.row.push_back(int64_t(random() % uint64_t(num_nodes)));
    graph.col.push_back(int64_t(random() % uint64_t(num_nodes)));
    const int value = int(random() % 9) - 4;
    graph.scores.push_back(Score(value == 0 && random() % 2 ? -0.0 : value * 0.25));
  }
  if (sorted) std::sort(graph.row.begin(), graph.row.end());
  return graph;
}

// The lowest-numbered of the highest-scored edges of each row, -1 where there is none.
template <class Score>
std::vector<int64_t> plain_dominant(const Graph<Score>& graph) {
  std::vector<int64_t> best(size_t(graph.num_nodes), -1);
  for (size_t e = 0; e < graph.row.size(); ++e) {
    int64_t& edge = best[size_t(graph.row[e])];
    if (edge < 0 || double(graph.scores[e]) > double(graph.scores[size_t(edge)])) edge = int64_t(e);
  }
  return best;
}

// Components by repeated minimum, numbered in the order of their smallest nodes.
inline std::vector<int64_t> plain_components(const std::vector<int64_t>& row, const std::vector<int64_t>& col,
                                             int64_t num_nodes) {
  std::vector<int64_t> smallest(static_cast<size_t>(num_nodes));
  std::iota(smallest.begin(), smallest.end(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t e = 0; e < row.size(); ++e) {
      int64_t &u = smallest[size_t(row[e])], &v = smallest[size_t(col[e])];
      if (u == v) continue;
      u = v = std::min(u, v);
      changed = true;
    }
  }
  std::vector<int64_t> label(static_cast<size_t>(num_nodes));
  int64_t next = 0;
  for (size_t v = 0; v < label.size(); ++v) {
    label[v] = smallest[v] == int64_t(v) ? next++ : label[size_t(smallest[v])];
  }
  return label;
}

template <class Score>
std::vector<int64_t> plain_parse(const Graph<Score>& graph) {
  std::vector<int64_t> row, col;
  const std::vector<int64_t> dominant = plain_dominant(graph);
  for (int64_t v = 0; v < graph.num_nodes; ++v) {
    if (dominant[size_t(v)] < 0) continue;
    row.push_back(v);
    col.push_back(graph.col[size_t(dominant[size_t(v)])]);
  }
  return plain_components(row, col, graph.num_nodes);
}

}  // namespace gpn::test
