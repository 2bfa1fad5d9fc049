// The CPU algorithms with their threads as fibers, so that schedules are explored which real threads hardly
// ever meet, and replay.
#include "emulation/emulation.h"
//
#include "fibers.h"
#include "seeds.h"

int main(int argc, char** argv) {
  using namespace gpn::test;
  return for_seeds(argc, argv, 2000, test_parse<int32_t>);
}
