// Runs a test for many seeds, each of which decides everything: shapes, sizes, schedule.
//
//   test_x              the quick tier
//   test_x --seeds 5000 more of them (or GPN_OPS_SEEDS=5000, for all tests of a run)
//   test_x --seed 17    one of them again; what failed prints this line
//   test_x --memory newest  (or relaxed) for all of them; else the seed decides
#pragma once

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulation/emulation.h"
#include "emulation/sanitizers.h"

namespace gpn::test {

struct Running {
  const char* program = nullptr;
  uint64_t seed = 0;
  bool done = true;
  const char* options = "";
};
inline Running running;

// However the process ends: by CHECK, by exception or by a sanitizer.
inline void say_how_to_repeat() {
  if (running.done) return;
  running.done = true;
  const bool relaxed = emulation::settings.memory == emulation::Memory::kRelaxed;
  std::fprintf(stderr, "again: %s --seed %" PRIu64 "%s  (schedule: %s, memory: %s)\n", running.program,
               running.seed, running.options, emulation::name_of(emulation::settings.policy),
               relaxed ? "relaxed" : "newest");
}

// one(random, seed) for every seed; `random` has been seeded with it, and so has the schedule.
template <class One>
int for_seeds(int argc, char** argv, uint64_t quick, const One& one) {
#if defined(__SANITIZE_THREAD__)
  quick = (quick + 7) / 8;  // each takes that much longer
#endif
  uint64_t first = 0, count = quick;
  if (const char* wanted = std::getenv("GPN_OPS_SEEDS")) count = std::strtoull(wanted, nullptr, 10);
  const char* memory = "by seed";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--memory") == 0) memory = argv[i + 1];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seeds") == 0) count = value;
    if (std::strcmp(argv[i], "--seed") == 0) first = value, count = 1;
  }
  if (count == 0) {
    std::fprintf(stderr, "no seeds: nothing would be tested\n");
    return 1;
  }
  const bool newest = std::strcmp(memory, "newest") == 0, relaxed = std::strcmp(memory, "relaxed") == 0;
  std::atexit(say_how_to_repeat);
  emulation::on_death(say_how_to_repeat);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    running = {argv[0], seed, false, newest ? " --memory newest" : relaxed ? " --memory relaxed" : ""};
    emulation::Random random(seed);
    emulation::clear();
    emulation::settings = {};
    emulation::settings.policy = emulation::Policy(seed % emulation::kPolicies);
    emulation::settings.seed = seed;
    const bool drawn = emulation::Random(~seed).below(2);
    emulation::settings.memory =
        relaxed || (drawn && !newest) ? emulation::Memory::kRelaxed : emulation::Memory::kNewest;
    emulation::settings.resident_threads = random.of<unsigned>({32, 256, 1024});
    try {
      one(random, seed);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    running.done = true;
  }
  std::printf("%" PRIu64 " seeds from %" PRIu64 "\n", count, first);
  return 0;
}

}  // namespace gpn::test
