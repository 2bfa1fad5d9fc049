// Counts what the kernels of a program do: launches, bytes, 32-byte sectors of memory a warp touches, and the
// longest work of one thread. For that the kernels' translation units are compiled with -fsanitize=thread,
// which makes every access a call, and linked not with ThreadSanitizer but with counts.cpp, where those calls
// end. Without it, and in the tests that really run under ThreadSanitizer, nothing is counted.
//
// The lanes of a warp run one after another here. An access of one lane and an access of another one belong
// to the same instruction of the warp if they come from the same place of the program and if both lanes have
// been there equally often before. That is what a GPU does with lanes that part and come together again;
// where lanes skip turns of a loop it is an estimate.
//
// Only device memory counts (DeviceMemory): neither the threads' own variables nor shared memory, nor the
// parameters of a kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulation.h"

namespace emulation {

constexpr int64_t kSector = 32;  // bytes

// Summed over the launches of one kernel, but for the two that are maxima. An atomic read-modify-write counts
// as a read and a write.
struct KernelCounts {
  int64_t launches = 0;
  int64_t sectors_read = 0, sectors_written = 0;    // of every instruction of every warp: no cache
  int64_t distinct_read = 0, distinct_written = 0;  // each sector once a launch: a cache that forgets nothing
  int64_t bytes_read = 0, bytes_written = 0;        // that threads asked for
  int64_t longest_chain = 0;                        // accesses of one thread in a launch
  int64_t longest_loop = 0;  // how often one thread came to the same access: the items that it takes in turn

  friend bool operator==(const KernelCounts&, const KernelCounts&) = default;
};

struct Counts {
  std::vector<std::pair<std::string, KernelCounts>> kernels;  // in the order of their first launches
  int64_t waits = 0;                                          // of the host for the device

  KernelCounts& of(const std::string& name);
  KernelCounts total() const;  // maxima for the two that are
};

// Memory that counts, aligned as torch's allocator aligns: 512 bytes. Given back all at once.
class DeviceMemory {
 public:
  DeviceMemory();
  ~DeviceMemory();
  void* allocate(int64_t bytes);
  void clear();
  static int64_t taken(int64_t bytes) { return (bytes + 511) / 512 * 512; }  // by so many
};

// Counts from its birth to its death. One at a time.
class Counting : public Observer {
 public:
  explicit Counting(Counts& counts);
  ~Counting() override;
  void launch_starts(const void* body, size_t bytes, size_t slots) override;
  void block_ends(const std::vector<size_t>& slots) override;
  void launch_ends() override;
  void launched(const char* name, int64_t launches, int64_t bytes_read, int64_t bytes_written) override;
  void waited() override;

  void accessed(const void* address, int64_t bytes, bool reads, bool writes, const void* place);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace emulation
