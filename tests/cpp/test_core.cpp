// The shared headers and the CPU algorithms, without torch: also under AddressSanitizer, UBSan and
// ThreadSanitizer.
#include <cmath>
#include <limits>

#include "check.h"
#include "cpu/parse.h"

namespace gpn::test {
namespace {

using cpu::Sweep;

template <class Float>
void test_order_of_scores() {
  using Limits = std::numeric_limits<Float>;
  const Float infinity = Limits::infinity(), tiny = Limits::denorm_min();
  const std::vector<Float> ascending = {
      -infinity, Limits::lowest(), -1, -Limits::min(),        -tiny,         0,
      tiny,      Limits::min(),    1,  1 + Limits::epsilon(), Limits::max(), infinity};
  for (size_t i = 1; i < ascending.size(); ++i) CHECK(ordered(ascending[i - 1]) < ordered(ascending[i]));
  CHECK(ordered(Float(-0.0)) == ordered(Float(0.0)));
  CHECK(ordered(-infinity) > ordered(Limits::quiet_NaN()));
  CHECK(ordered(Limits::quiet_NaN()) == kNanCode && ordered(-Limits::quiet_NaN()) == kNanCode);
  CHECK(kNanCode > 0);  // 0 is 'no edge'
}

void test_packed_keys() {
  CHECK(packed_key(ordered(1.0f), 7) > packed_key(ordered(1.0f), 8));  // the lower id wins a tie
  CHECK(packed_key(ordered(-1.0f), 0) < packed_key(ordered(1.0f), kPackedEdges - 1));
  for (const uint64_t edge : {uint64_t(0), uint64_t(1), uint64_t(kPackedEdges - 1)}) {
    CHECK(packed_edge(packed_key(ordered(0.5f), edge)) == edge);
  }
  CHECK(packed_key(kNanCode, kPackedEdges - 1) != 0);
}

void test_pieces() {
  for (const int64_t size : {0, 1, 7, 64, 1000}) {
    for (const int64_t tasks : {1, 2, 3, 7}) {
      const cpu::Pieces pieces{size, tasks};
      CHECK(pieces.begin(0) == 0 && pieces.end(tasks - 1) == size);
      for (int64_t t = 0; t < tasks; ++t) CHECK(pieces.end(t) - pieces.begin(t) <= size / tasks + 1);
      for (int64_t t = 1; t < tasks; ++t) CHECK(pieces.begin(t) == pieces.end(t - 1));
    }
  }
}

template <class Node, class Choice>
std::vector<int64_t> parse(const Threads& threads, const std::vector<Choice>& choice) {
  const int64_t num_nodes = int64_t(choice.size());
  std::vector<Node> parent(choice.size());
  std::vector<int64_t> cluster(choice.size());
  cpu::connect_choices(threads, choice.data(), num_nodes, parent.data());
  cpu::label_components(threads, parent.data(), num_nodes, cluster.data());
  return cluster;
}

// Every form of `dominant`, and the clusters that follow, on one graph.
template <class Score>
void check_graph(const Threads& threads, const Graph<Score>& graph) {
  const Edges edges = graph.edges();
  const std::vector<int64_t> dominant = plain_dominant(graph);
  const std::vector<int64_t> cluster = plain_parse(graph);
  std::vector<int64_t> ids(dominant.size());
  const auto scratch = [&] { return ids.data(); };
  for (const Form form : {Form::kAutomatic, Form::kPacked, Form::kWide}) {
    for (const int64_t first : {int64_t(0), (int64_t(1) << 33) + 5}) {
      std::vector<int64_t> edge(dominant.size(), -7), choice(dominant.size(), -7);
      const KeepEdge keep{first};
      CHECK(cpu::dominant(threads, edges, graph.scores.data(), keep, form, first, edge.data(), scratch) ==
            Sweep::kDone);
      for (size_t v = 0; v < edge.size(); ++v) CHECK(edge[v] == (dominant[v] < 0 ? -1 : dominant[v] + first));
      CHECK(cpu::dominant(threads, edges, graph.scores.data(), KeepColumn{edges.col}, form, first,
                          choice.data(), scratch) == Sweep::kDone);
      CHECK(parse<int32_t>(threads, choice) == cluster);
      CHECK(parse<int64_t>(threads, choice) == cluster);
    }
  }
  std::vector<int64_t> out(dominant.size());
  std::vector<int32_t> spare(dominant.size());
  CHECK(cpu::choices(threads, edges, graph.scores.data(), out.data(), spare.data(), scratch) == Sweep::kDone);
  const int32_t* choice = reinterpret_cast<const int32_t*>(out.data());
  CHECK(parse<int32_t>(threads, std::vector<int32_t>(choice, choice + graph.num_nodes)) == cluster);
  std::vector<int32_t> parent(dominant.size());
  std::vector<int64_t> label(dominant.size());
  CHECK(cpu::all_ids_fit(threads, edges));
  cpu::connect_edges(threads, edges, parent.data());
  cpu::label_components(threads, parent.data(), graph.num_nodes, label.data());
  CHECK(label == plain_components(graph.row, graph.col, graph.num_nodes));
}

template <class Score>
void test_random_graphs() {
  std::mt19937_64 random(sizeof(Score));
  for (const int64_t num_nodes : {1, 2, 40, 300, 1500}) {
    for (const double degree : {0.0, 0.5, 2.0, 20.0}) {
      for (const bool sorted : {true, false}) {
        const auto graph =
            random_graph<Score>(random, num_nodes, int64_t(double(num_nodes) * degree), sorted);
        for (const int64_t threads : {1, 2, 5}) check_graph(Threads{threads}, graph);
      }
    }
  }
}

// Rows longer than blocks, stretches and pieces, beside short ones, so that runs begin, end and cross at
// every boundary.
void test_long_runs() {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 25; ++trial) {
    Graph<float> graph{{}, {}, {}, 24};
    for (int64_t r = 0; r < graph.num_nodes; ++r) {
      const uint64_t length = random() % 3 == 0 ? random() % 1500 : random() % 4;
      for (uint64_t k = 0; k < length; ++k) {
        graph.row.push_back(r);
        graph.col.push_back(int64_t(random() % 24));
        graph.scores.push_back(float(random() % 50));
      }
    }
    for (const int64_t threads : {1, 3, 7}) check_graph(Threads{threads}, graph);
  }
}

// Deep trees in the worst orders: chains of choices up and down, and in random order.
void test_long_chains() {
  const int64_t num_nodes = 20000;
  std::mt19937_64 random(2);
  std::vector<int64_t> order(num_nodes);
  std::iota(order.begin(), order.end(), 0);
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<int64_t> choice(num_nodes, -1);
    for (int64_t i = 0; i + 1 < num_nodes; ++i) choice[size_t(order[size_t(i)])] = order[size_t(i) + 1];
    if (trial == 3) choice[size_t(order.back())] = order.front();  // a ring
    for (const int64_t threads : {1, 2, 4}) {
      CHECK(parse<int32_t>(Threads{threads}, choice) == std::vector<int64_t>(num_nodes, 0));
    }
    if (trial == 0) std::reverse(order.begin(), order.end());
    if (trial >= 1) std::shuffle(order.begin(), order.end(), random);
  }
}

// Bad values at every position, in every form, are noticed and lead to no access out of bounds
// (AddressSanitizer watches).
void test_bad_values() {
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  std::mt19937_64 random(3);
  for (const bool sorted : {true, false}) {
    const auto good = random_graph<float>(random, 50, 700, sorted);
    std::vector<int64_t> kept(50), ids(50);
    for (const Form form : {Form::kAutomatic, Form::kPacked, Form::kWide}) {
      for (const int64_t threads : {1, 3}) {
        const auto outcome = [&](const Graph<float>& graph) {
          return cpu::dominant(Threads{threads}, graph.edges(), graph.scores.data(), KeepEdge{0}, form, 0,
                               kept.data(), [&] { return ids.data(); });
        };
        CHECK(outcome(good) == Sweep::kDone);
        for (size_t e = 0; e < good.row.size(); e += 61) {
          for (const int64_t id : {int64_t(-1), int64_t(50), lowest, highest}) {
            auto bad_row = good, bad_col = good;
            bad_row.row[e] = id;
            bad_col.col[e] = id;
            CHECK(outcome(bad_row) == Sweep::kBad);
            CHECK(outcome(bad_col) == Sweep::kBad);
            CHECK(!cpu::all_ids_fit(Threads{threads}, bad_row.edges()));
            CHECK(!cpu::all_ids_fit(Threads{threads}, bad_col.edges()));
          }
          auto bad_score = good;
          bad_score.scores[e] = std::numeric_limits<float>::quiet_NaN();
          CHECK(outcome(bad_score) == Sweep::kBad);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gpn::test

int main() {
  using namespace gpn::test;
  test_order_of_scores<float>();
  test_order_of_scores<double>();
  test_packed_keys();
  test_pieces();
  test_random_graphs<float>();
  test_random_graphs<double>();
  test_long_runs();
  test_long_chains();
  test_bad_values();
}
