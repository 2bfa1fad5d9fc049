// The parse of the CPU with its threads as fibers: what schedules and relaxed memory are tried on.
#pragma once

#include <algorithm>
#include <random>
#include <stdexcept>

#include "check.h"
#include "cpu/parse.h"
#include "emulation/emulation.h"

namespace gpn::test {

struct Fibers {
  int64_t count;

  int64_t tasks(int64_t size) const { return std::clamp<int64_t>(size, 1, count); }
  int64_t shares(int64_t size) const { return tasks(size); }

  template <class F>
  void operator()(int64_t tasks, const F& f) const {
    emulation::launch(1, unsigned(tasks), [&] { f(int64_t(emulation::thread_of_block())); });
    if (!emulation::record.failure.empty()) throw std::runtime_error(emulation::record.failure);
  }
};

template <class Node>
void test_parse(emulation::Random& random, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const int64_t num_nodes = random.of<int64_t>({2, 5, 30, 200});
  const int64_t num_edges = num_nodes * random.of<int64_t>({1, 2, 6});
  const Graph<float> graph = random_graph<float>(generator, num_nodes, num_edges, random.below(2));
  const Fibers fibers{1 + random.below(12)};
  std::vector<int64_t> choice(size_t(num_nodes), -7), ids(choice);
  const Form form = random.of<Form>({Form::kAutomatic, Form::kPacked, Form::kWide});
  CHECK(cpu::dominant(fibers, graph.edges(), graph.scores.data(), KeepColumn{graph.col.data()}, form, 0,
                      choice.data(), [&] { return ids.data(); }) == cpu::Sweep::kDone);
  std::vector<Node> parent(size_t(num_nodes), -7);
  cpu::connect_choices(fibers, choice.data(), num_nodes, parent.data());
  cpu::label_components(fibers, parent.data(), num_nodes, choice.data());
  CHECK(choice == plain_parse(graph));
  cpu::connect_edges(fibers, graph.edges(), parent.data());
  cpu::label_components(fibers, parent.data(), num_nodes, choice.data());
  CHECK(choice == plain_components(graph.row, graph.col, num_nodes));
}

}  // namespace gpn::test
