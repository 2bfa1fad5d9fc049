#include "counts.h"

#include <cxxabi.h>
#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

namespace emulation {
namespace {

// ------------------------------------------------------------------------------------------------ memory

constexpr int64_t kDeviceBytes = int64_t(1) << 36;  // of addresses; pages are taken as they are touched
char* device_begin = nullptr;
int64_t device_used = 0;

int64_t device_offset(const void* address) { return static_cast<const char*>(address) - device_begin; }

void* reserve(int64_t bytes) {
  void* memory = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("emulation: no addresses for device memory");
    std::abort();
  }
  return memory;
}

// A set of sectors of device memory.
class Sectors {
 public:
  Sectors() = default;
  Sectors(const Sectors&) = delete;
  ~Sectors() { munmap(bits_, size_t(kBytes)); }
  void add(int64_t sector) {
    uint64_t& bits = bits_[sector / 64];
    if (bits == 0) touched_.push_back(sector / 64);
    bits |= uint64_t(1) << sector % 64;
  }
  int64_t take_count() {  // and empty it
    int64_t count = 0;
    for (const int64_t at : touched_) count += __builtin_popcountll(std::exchange(bits_[at], 0));
    touched_.clear();
    return count;
  }

 private:
  static constexpr int64_t kBytes = kDeviceBytes / kSector / 8;
  uint64_t* const bits_ = static_cast<uint64_t*>(reserve(kBytes));
  std::vector<int64_t> touched_;
};

// -------------------------------------------------------------------------------------------- names of
// kernels

extern "C" __attribute__((used)) void emulation_anchor() {}

// The functions of this program by address, from its symbol table: that of the file has local ones too.
const std::map<uint64_t, std::string>& functions() {
  static const std::map<uint64_t, std::string> all = [] {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto at = [&]<class T>(uint64_t offset, T) {
      T value;
      std::memcpy(&value, image.data() + offset, sizeof(value));
      return value;
    };
    std::map<uint64_t, std::string> found;
    uint64_t anchor = 0;
    const Elf64_Ehdr header = at(0, Elf64_Ehdr());
    for (uint64_t s = 0; s < header.e_shnum; ++s) {
      const Elf64_Shdr section = at(header.e_shoff + s * sizeof(Elf64_Shdr), Elf64_Shdr());
      if (section.sh_type != SHT_SYMTAB) continue;
      const Elf64_Shdr names = at(header.e_shoff + section.sh_link * sizeof(Elf64_Shdr), Elf64_Shdr());
      for (uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
        const Elf64_Sym symbol = at(section.sh_offset + i * sizeof(Elf64_Sym), Elf64_Sym());
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
        const std::string name = image.data() + names.sh_offset + symbol.st_name;
        found[symbol.st_value] = name;
        if (name == "emulation_anchor") anchor = symbol.st_value;
      }
    }
    const uint64_t moved = reinterpret_cast<uint64_t>(&emulation_anchor) - anchor;
    std::map<uint64_t, std::string> loaded;
    for (const auto& [address, name] : found) loaded[address + moved] = name;
    return loaded;
  }();
  return all;
}

// "void gpn::cuda::fill<float>(float*, long, float)" is fill<float>.
std::string short_name(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (status != 0) return symbol;
  std::string name = text;
  std::free(text);
  for (const char* noise : {"(anonymous namespace)::", "gpn::cuda::", "gpn::test::", "gpn::", "unsigned "}) {
    const std::string sign = std::string(noise) == "unsigned " ? "u" : "";
    for (size_t at; (at = name.find(noise)) != std::string::npos;) name.replace(at, std::strlen(noise), sign);
  }
  int depth = 0;  // in template arguments, which may have parentheses and spaces
  size_t begin = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth > 0) continue;
    if (name[i] == ' ') begin = i + 1;
    if (name[i] == '(') return name.substr(begin, i - begin);
  }
  return name;
}

// The body of a launch holds its arguments, the kernel's address among them.
std::string kernel_of(const void* body, size_t bytes) {
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(body) + at, sizeof(word));
    const auto found = functions().find(word);
    if (found != functions().end()) return short_name(found->second);
  }
  return "a kernel";
}

// ----------------------------------------------------------------------------------------------- accesses

struct Access {
  const void* place;
  int64_t turn;  // how often the thread had been there before
  bool writes;
  int64_t sector;
};

struct ThreadCounts {
  std::vector<Access> accesses;
  std::vector<std::pair<const void*, int64_t>> turns;  // by place
  int64_t chain = 0;

  int64_t next_turn(const void* place) {
    for (auto& [known, count] : turns) {
      if (known == place) return count++;
    }
    turns.emplace_back(place, 1);
    return 0;
  }
};

Counting* counting = nullptr;

}  // namespace

KernelCounts& Counts::of(const std::string& name) {
  for (auto& [known, kernel] : kernels) {
    if (known == name) return kernel;
  }
  return kernels.emplace_back(name, KernelCounts()).second;
}

KernelCounts Counts::total() const {
  KernelCounts sum;
  for (const auto& [name, kernel] : kernels) {
    sum.launches += kernel.launches;
    sum.sectors_read += kernel.sectors_read;
    sum.sectors_written += kernel.sectors_written;
    sum.distinct_read += kernel.distinct_read;
    sum.distinct_written += kernel.distinct_written;
    sum.bytes_read += kernel.bytes_read;
    sum.bytes_written += kernel.bytes_written;
    sum.longest_chain = std::max(sum.longest_chain, kernel.longest_chain);
    sum.longest_loop = std::max(sum.longest_loop, kernel.longest_loop);
  }
  return sum;
}

DeviceMemory::DeviceMemory() {
  if (device_begin == nullptr) device_begin = static_cast<char*>(reserve(kDeviceBytes));
}
DeviceMemory::~DeviceMemory() { clear(); }
void* DeviceMemory::allocate(int64_t bytes) {
  char* memory = device_begin + device_used;
  device_used += std::max<int64_t>(taken(bytes), 512);
  if (device_used > kDeviceBytes) {
    std::fprintf(stderr, "emulation: out of device memory\n");
    std::abort();
  }
  return memory;
}
void DeviceMemory::clear() {
  madvise(device_begin, size_t(device_used), MADV_DONTNEED);
  device_used = 0;
}

struct Counting::State {
  Counts& counts;
  KernelCounts* kernel = nullptr;       // that runs
  std::vector<ThreadCounts> threads{};  // by slot
  Sectors read{}, written{};
  std::vector<Access> warp{};
};

Counting::Counting(Counts& counts) : state_(new State{counts}) {
  observer = this;
  counting = this;
}
Counting::~Counting() {
  observer = nullptr;
  counting = nullptr;
}

void Counting::launch_starts(const void* body, size_t bytes, size_t slots) {
  state_->kernel = &state_->counts.of(kernel_of(body, bytes));
  ++state_->kernel->launches;
  state_->threads.assign(slots, {});
}

void Counting::accessed(const void* address, int64_t bytes, bool reads, bool writes, const void* place) {
  const int64_t begin = device_offset(address);
  if (begin < 0 || begin >= device_used || !in_kernel()) return;
  ThreadCounts& thread = state_->threads[slot_of_thread()];
  KernelCounts& kernel = *state_->kernel;
  const int64_t turn = thread.next_turn(place);
  ++thread.chain;
  for (const bool write : {false, true}) {
    if (!(write ? writes : reads)) continue;
    (write ? kernel.bytes_written : kernel.bytes_read) += bytes;
    for (int64_t sector = begin / kSector; sector <= (begin + bytes - 1) / kSector; ++sector) {
      thread.accesses.push_back({place, turn, write, sector});
    }
  }
}

void Counting::block_ends(const std::vector<size_t>& slots) {
  KernelCounts& kernel = *state_->kernel;
  std::vector<Access>& warp = state_->warp;
  for (size_t first = 0; first < slots.size(); first += 32) {
    warp.clear();
    for (size_t t = first; t < std::min(first + 32, slots.size()); ++t) {
      ThreadCounts& thread = state_->threads[slots[t]];
      warp.insert(warp.end(), thread.accesses.begin(), thread.accesses.end());
      kernel.longest_chain = std::max(kernel.longest_chain, thread.chain);
      for (const auto& [place, turns] : thread.turns)
        kernel.longest_loop = std::max(kernel.longest_loop, turns);
      thread.accesses.clear();
      thread.turns.clear();
      thread.chain = 0;
    }
    const auto key = [](const Access& a) { return std::tie(a.place, a.turn, a.writes, a.sector); };
    std::sort(warp.begin(), warp.end(), [&](const Access& a, const Access& b) { return key(a) < key(b); });
    const auto same = [&](const Access& a, const Access& b) { return key(a) == key(b); };
    warp.erase(std::unique(warp.begin(), warp.end(), same), warp.end());
    for (const Access& access : warp) {
      ++(access.writes ? kernel.sectors_written : kernel.sectors_read);
      (access.writes ? state_->written : state_->read).add(access.sector);
    }
  }
}

void Counting::launch_ends() {
  KernelCounts& kernel = *state_->kernel;
  kernel.distinct_read += state_->read.take_count();
  kernel.distinct_written += state_->written.take_count();
}

void Counting::launched(const char* name, int64_t launches, int64_t bytes_read, int64_t bytes_written) {
  KernelCounts& kernel = state_->counts.of(name);
  const auto sectors = [](int64_t bytes) { return (bytes + kSector - 1) / kSector; };
  kernel.launches += launches;
  kernel.bytes_read += bytes_read;
  kernel.bytes_written += bytes_written;
  for (int64_t* count : {&kernel.sectors_read, &kernel.distinct_read}) *count += sectors(bytes_read);
  for (int64_t* count : {&kernel.sectors_written, &kernel.distinct_written}) *count += sectors(bytes_written);
}

void Counting::waited() { ++state_->counts.waits; }

namespace {
inline void accessed(const void* address, int64_t bytes, bool reads, bool writes, const void* place) {
  if (counting != nullptr) counting->accessed(address, bytes, reads, writes, place);
}
}  // namespace

}  // namespace emulation

// ------------------------------------------------------------------------------- what the compiler's calls
// reach

#define PLACE __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* address, unsigned long bytes) {
  emulation::accessed(address, int64_t(bytes), true, false, PLACE);
}
void __tsan_write_range(void* address, unsigned long bytes) {
  emulation::accessed(address, int64_t(bytes), false, true, PLACE);
}

#define ACCESSES(bytes)                                                                                \
  void __tsan_read##bytes(void* address) { emulation::accessed(address, bytes, true, false, PLACE); }  \
  void __tsan_write##bytes(void* address) { emulation::accessed(address, bytes, false, true, PLACE); } \
  void __tsan_unaligned_read##bytes(void* address) {                                                   \
    emulation::accessed(address, bytes, true, false, PLACE);                                           \
  }                                                                                                    \
  void __tsan_unaligned_write##bytes(void* address) {                                                  \
    emulation::accessed(address, bytes, false, true, PLACE);                                           \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

// The emulation runs on one thread, and the tests that count have no others: the strongest order costs
// nothing.
#define CHANGE(bits, name)                                                                           \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile void* address, uint##bits##_t value, int) {   \
    emulation::accessed(const_cast<void*>(address), bits / 8, true, true, PLACE);                    \
    return __atomic_##name(static_cast<volatile uint##bits##_t*>(address), value, __ATOMIC_SEQ_CST); \
  }
#define COMPARE(bits, name)                                                                    \
  bool __tsan_atomic##bits##_compare_exchange_##name(volatile void* address, void* expected,   \
                                                     uint##bits##_t desired, int, int) {       \
    emulation::accessed(const_cast<void*>(address), bits / 8, true, true, PLACE);              \
    return __atomic_compare_exchange_n(static_cast<volatile uint##bits##_t*>(address),         \
                                       static_cast<uint##bits##_t*>(expected), desired, false, \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                    \
  }
#define ATOMICS(bits)                                                                                    \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile void* address, int) {                         \
    emulation::accessed(const_cast<const void*>(address), bits / 8, true, false, PLACE);                 \
    return __atomic_load_n(static_cast<const volatile uint##bits##_t*>(address), __ATOMIC_SEQ_CST);      \
  }                                                                                                      \
  void __tsan_atomic##bits##_store(volatile void* address, uint##bits##_t value, int) {                  \
    emulation::accessed(const_cast<void*>(address), bits / 8, false, true, PLACE);                       \
    __atomic_store_n(static_cast<volatile uint##bits##_t*>(address), value, __ATOMIC_SEQ_CST);           \
  }                                                                                                      \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile void* address, uint##bits##_t value, int) {     \
    emulation::accessed(const_cast<void*>(address), bits / 8, true, true, PLACE);                        \
    return __atomic_exchange_n(static_cast<volatile uint##bits##_t*>(address), value, __ATOMIC_SEQ_CST); \
  }                                                                                                      \
  CHANGE(bits, fetch_add)                                                                                \
  CHANGE(bits, fetch_sub)                                                                                \
  CHANGE(bits, fetch_and)                                                                                \
  CHANGE(bits, fetch_or)                                                                                 \
  CHANGE(bits, fetch_xor)                                                                                \
  COMPARE(bits, strong)                                                                                  \
  COMPARE(bits, weak)
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}
