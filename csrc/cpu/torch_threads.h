// What the CPU kernels take from torch: its thread pool and its allocator.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "../checks.h"
#include "../core/sums.h"

namespace gpn::cpu {

struct TorchThreads {
  // At most one task a thread, and none so small that starting a thread costs more than it saves.
  int64_t tasks(int64_t size) const {
    return std::clamp<int64_t>(size / 16384, 1, torch::stable::get_num_threads());
  }

  template <class F>
  void operator()(int64_t tasks, const F& f) const {
    if (tasks == 1) return f(0);
    torch::stable::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) f(task);
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

// An uninitialised tensor on the device of another one.
inline Tensor new_tensor(const Tensor& like, const std::vector<int64_t>& shape, ScalarType type) {
  const Tensor tensor = torch::stable::new_empty(like, shape, type);
  use_large_pages(tensor.mutable_data_ptr(), tensor.numel() * int64_t(tensor.element_size()));
  return tensor;
}

inline Tensor empty_like_on(const Tensor& tensor, int64_t size, ScalarType type) {
  return new_tensor(tensor, {size}, type);
}

// Memory from torch's allocator, for as long as the object lives.
class Scratch {
 public:
  explicit Scratch(const Tensor& like) : like_(like) {}
  void* operator()(int64_t bytes) const {
    held_.push_back(new_tensor(like_, {bytes}, ScalarType::Byte));
    return held_.back().mutable_data_ptr();
  }
  template <class T>
  T* room(int64_t count) const {
    return static_cast<T*>((*this)(count * int64_t(sizeof(T))));
  }

 private:
  const Tensor& like_;
  mutable std::vector<Tensor> held_;
};

// Where the sums of `out` are taken: in place, or in memory of their own if they need another type.
template <class T>
Sum<T>* room_for_sums(const Tensor& out, const Scratch& scratch) {
  if constexpr (std::is_same_v<T, Sum<T>>) {
    return out.mutable_data_ptr<T>();
  } else {
    return scratch.room<Sum<T>>(out.numel());
  }
}

// Called when a kernel has met an id out of range: names the first one.
inline void report_bad_ends(const char* name, const int64_t* first, const int64_t* second, int64_t count,
                            int64_t num_nodes) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t end = 0; end < 2; ++end) {
      const int64_t id = end ? second[i] : first[i];
      if (id < 0 || id >= num_nodes) {
        fail(name, ": expected node ids from 0 to num_nodes - 1 = ", num_nodes - 1, ", got ", id, " at ",
             name, "[", end, ", ", i, "]");
      }
    }
  }
}

// `what` is the name of `size`.
inline void report_bad_clusters(const Tensor& cluster, int64_t lowest, const char* what, int64_t size) {
  const int64_t* id = cluster.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < cluster.size(0); ++i) {
    if (id[i] < lowest || id[i] >= size) {
      fail("cluster: expected ids from ", lowest, " to ", what, " - 1 = ", size - 1, ", got ", id[i],
           " at cluster[", i, "]");
    }
  }
}

}  // namespace gpn::cpu
