// What the CPU kernels take from torch: its threads and its allocator.
#pragma once

#include <algorithm>
#include <atomic>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "../ops/host.h"
#include "products.h"

namespace gpn::cpu {

struct Threads {
  // At most one task a thread, and none so small that starting a thread costs more than it saves.
  int64_t tasks(int64_t size) const {
    return std::clamp<int64_t>(size / 16384, 1, torch::stable::get_num_threads());
  }

  // Several a thread, if there is more than one.
  int64_t shares(int64_t size) const {
    const int64_t threads = torch::stable::get_num_threads();
    return threads == 1 ? 1 : std::clamp<int64_t>(size / 16384, 1, 8 * threads);
  }

  template <class F>
  void operator()(int64_t tasks, const F& f) const {
    if (tasks == 1) return f(0);
    std::atomic<int64_t> next = 0;
    const int64_t threads = std::min<int64_t>(tasks, torch::stable::get_num_threads());
    torch::stable::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) f(task);
    });
  }
};

// Asks for large pages: the first touch of fresh memory, page by page, would cost more than the work that
// fills it.
inline void use_large_pages(void* memory, int64_t bytes) {
#if defined(__linux__)
  constexpr int64_t kPage = int64_t(1) << 21;
  const int64_t begin = (int64_t(memory) + kPage - 1) / kPage * kPage,
                end = (int64_t(memory) + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), size_t(end - begin), MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

struct Device {
  static constexpr bool kKeeps = true;

  explicit Device(const Tensor&) {}
  Threads run;

  template <class W>
  using Products = cpu::Products<W>;

  static Tensor new_tensor(const Tensor& like, const std::vector<int64_t>& shape, ScalarType type) {
    const Tensor tensor = new_empty(like, shape, type);
    use_large_pages(tensor.mutable_data_ptr(), tensor.numel() * int64_t(tensor.element_size()));
    return tensor;
  }

  [[noreturn]] static void throw_out_of_memory(const std::string& text) { throw std::runtime_error(text); }
};

}  // namespace gpn::cpu
