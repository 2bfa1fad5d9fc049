// A device of our own, registered with torch as PrivateUse1: allocator, guard, streams, events, generators,
// copies. Operators of aten run on the CPU, on copies of their arguments. Everything runs at once and in
// order; what the host waits for is counted all the same (standin_waits), and a device-side assertion that
// failed is raised where the host waits next, and from then on, as CUDA does.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

#include "emulation.h"
#include "memory.h"

namespace standin {
namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

std::atomic<int64_t> waits{0};
thread_local int in_fallback = 0;  // its copies stand for kernels, which wait for nothing

void check_usable() {
  TORCH_CHECK(
      !in_bad_fork(),
      "Cannot re-initialize the stand-in device in forked subprocess. To use it with multiprocessing, "
      "you must use the 'spawn' start method");
}

void check_assertions() {
  TORCH_CHECK(emulation::record.assertions.empty(),
              "standin: device-side assert triggered: ", emulation::record.assertions[0]);
}

// The host waits for the device.
void wait() {
  check_usable();
  if (in_fallback == 0) ++waits;
  check_assertions();
}

DeviceIndex checked(DeviceIndex index) {
  check_usable();
  if (index < 0) return DeviceIndex(current_device());
  TORCH_CHECK(index < kDevices, "standin: invalid device ordinal ", int(index), ", there are ", kDevices);
  return index;
}

// ------------------------------------------------------------------------------------------------ memory

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const DeviceIndex device = checked(-1);
    void* data = standin::allocate(device, bytes);
    if (data == nullptr && bytes > 0) {
      const Memory& memory = memory_of(device);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "standin out of memory. Tried to allocate ", bytes,
                       " bytes. The limit is ", memory.limit, " bytes, of which ", memory.current,
                       " are in use.");
    }
    return {data, data, release, Device(kType, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(open_alias(to), open_alias(from), bytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    const Memory& memory = memory_of(checked(device));
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& bytes = stats.allocated_bytes[size_t(c10::CachingAllocator::StatType::AGGREGATE)];
    bytes.current = memory.current;
    bytes.peak = memory.peak;
    bytes.allocated = memory.allocated;
    bytes.freed = memory.freed;
    stats.reserved_bytes = stats.active_bytes = stats.requested_bytes = stats.allocated_bytes;
    stats.allocation[size_t(c10::CachingAllocator::StatType::AGGREGATE)].current = memory.blocks;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    Memory& memory = memory_of(checked(device));
    memory.allocated = memory.freed = 0;
  }
  void resetPeakStats(DeviceIndex device) override {
    Memory& memory = memory_of(checked(device));
    memory.peak = memory.current;
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    const Memory& memory = memory_of(checked(device));
    return {size_t(memory.total - memory.current), size_t(memory.total)};
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

// Host memory that knows it is pinned. Nothing is faster for it here.
struct PinnedAllocator final : c10::Allocator {
  static inline std::mutex mutex;
  static inline std::map<const char*, size_t> blocks;

  static void free_pinned(void* data) {
    const std::lock_guard<std::mutex> lock(mutex);
    blocks.erase(static_cast<const char*>(data));
    c10::free_cpu(data);
  }
  static bool holds(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex);
    const char* address = static_cast<const char*>(data);
    auto after = blocks.upper_bound(address);
    return after != blocks.begin() && address < std::prev(after)->first + std::prev(after)->second;
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex);
      blocks[static_cast<const char*>(data)] = bytes;
    }
    return {data, data, free_pinned, Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

PinnedAllocator pinned_allocator;

// -------------------------------------------------------------------------------- guard, streams, events

struct Event {
  std::chrono::steady_clock::time_point time;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;  // NOLINT: C10_REGISTER_GUARD_IMPL's name
  static Stream of(DeviceIndex device, c10::StreamId id) {
    return Stream(Stream::UNSAFE, Device(kType, device), id);
  }
  static inline thread_local c10::StreamId streams[kDevices] = {};

  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    const Device old = getDevice();
    setDevice(device);
    return old;
  }
  Device getDevice() const override { return {kType, DeviceIndex(current_device())}; }
  void setDevice(Device device) const override { set_current_device(checked(device.index())); }
  void uncheckedSetDevice(Device device) const noexcept override { set_current_device(device.index()); }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }

  Stream getStream(Device device) const override {
    const DeviceIndex index = checked(device.index());
    return of(index, streams[index]);
  }
  Stream getDefaultStream(Device device) const override { return of(checked(device.index()), 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream getNewStream(Device device, int) const override {
    static std::atomic<c10::StreamId> last{0};
    return of(checked(device.index()), ++last);
  }
  Stream exchangeStream(Stream stream) const override {
    const DeviceIndex device = stream.device_index();
    return of(device, std::exchange(streams[device], stream.id()));
  }
  void* getStreamNativeHandle(const Stream) const override { return nullptr; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override { wait(); }
  void synchronizeDevice(const DeviceIndex) const override { wait(); }

  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->time = std::chrono::steady_clock::now();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { wait(); }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    TORCH_CHECK(from && to, "standin: both events must be recorded before elapsed_time");
    const auto time = static_cast<Event*>(to)->time - static_cast<Event*>(from)->time;
    return std::chrono::duration<double, std::milli>(time).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ------------------------------------------------------------------------------------------- generators

// A generator of the CPU under another name, with a state apart from those of the CPU.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(DeviceIndex device, uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl(Device(kType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        on_cpu(at::detail::createCPUGenerator(seed)) {}
  void set_current_seed(uint64_t seed) override { on_cpu.set_current_seed(seed); }
  uint64_t current_seed() const override { return on_cpu.current_seed(); }
  uint64_t seed() override { return on_cpu.seed(); }
  void set_offset(uint64_t) override { TORCH_CHECK(false, "standin: generators have no offset"); }
  uint64_t get_offset() const override { TORCH_CHECK(false, "standin: generators have no offset"); }
  void set_state(const c10::TensorImpl& state) override { on_cpu.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return on_cpu.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->on_cpu = on_cpu.clone();
    return copy;
  }

  at::Generator on_cpu;
};

const at::Generator& default_generator(DeviceIndex device) {
  static const std::vector<at::Generator> generators = [] {
    std::vector<at::Generator> made;
    for (DeviceIndex i = 0; i < kDevices; ++i) {
      made.push_back(at::make_generator<Generator>(i, c10::detail::getNonDeterministicRandom()));
    }
    return made;
  }();
  return generators[checked(device)];
}

// ------------------------------------------------------------------------------------------------- hooks

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  c10::DataPtr data = allocator.allocate(bytes);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) std::memcpy(open_alias(data.get()), open_alias(storage.data()), kept);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  DeviceIndex getCurrentDevice() const override { return DeviceIndex(current_device()); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(checked(device)); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex old = getCurrentDevice();
    if (device >= 0) setCurrentDevice(device);
    return old;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(device_of(data) >= 0, "standin: not an address of the device");
    return {kType, DeviceIndex(device_of(data))};
  }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<Generator>(checked(device));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

// --------------------------------------------------------------------------- operators that the device has

Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_strided_generic(size, stride, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

const Tensor& resize_tensor(const Tensor& self, c10::IntArrayRef size,
                            std::optional<c10::MemoryFormat> format) {
  if (self.sizes() == size) return self;
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t needed =
      size_t(self.storage_offset() + (self.numel() > 0 ? self.numel() : 0)) * self.element_size();
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage.nbytes()) resize_storage(storage, needed);
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

// The same memory as a tensor of the CPU.
Tensor on_cpu(const Tensor& tensor) {
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "standin: conjugated or negated views are missing");
  if (tensor.device().type() != kType) return tensor;
  const void* data = tensor.numel() > 0 ? tensor.const_data_ptr() : nullptr;
  return at::from_blob(data == nullptr ? nullptr : open_alias(data), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  check_usable();
  if (!to.device().is_privateuseone()) wait();  // pinned memory apart, which nothing here relies on
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.device().type() == kType) {
    resize_tensor(to, from.sizes(), std::nullopt);
  } else {
    to.resize_(from.sizes());
  }
  return copy_from(from, to, false);
}

c10::Scalar local_scalar(const Tensor& self) {
  wait();
  return on_cpu(self).item();
}

Tensor as_strided(const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                  std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_tensor);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("as_strided", as_strided);
  m.impl("view", static_cast<Tensor (*)(const Tensor&, c10::IntArrayRef)>(at::native::view));
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, c10::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
}

// ------------------------------------------------------------------------------- and those that it has not

// What waits for the device on CUDA: the size of the result depends on the data.
bool waits_on_cuda(const std::string& name) {
  static const char* const names[] = {
      "aten::nonzero",   "aten::masked_select",      "aten::_unique2", "aten::unique_dim",
      "aten::bincount",  "aten::unique_consecutive", "aten::equal",    "aten::unique_dim_consecutive",
      "aten::is_nonzero"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

struct InFallback {
  InFallback() { ++in_fallback; }
  ~InFallback() { --in_fallback; }
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_usable();
  const auto& schema = op.schema();
  TORCH_CHECK_NOT_IMPLEMENTED(schema.name().starts_with("aten::") || schema.name().starts_with("prims::"),
                              "standin: no kernel of ", schema.operator_name(), ": only operators of aten ",
                              "run on the CPU instead");
  if (waits_on_cuda(schema.name())) wait();
  const InFallback in;
  const size_t first = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    c10::TypePtr type = schema.arguments()[i].type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() != c10::TypeKind::GeneratorType) continue;
    c10::IValue& value = (*stack)[first + i];
    const at::Generator generator = value.isNone() ? default_generator(-1) : value.toGenerator();
    TORCH_CHECK(generator.device().type() == kType,
                "Expected a 'standin' device type for generator but found '", generator.device(), "'");
    value = static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->on_cpu;
  }
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}
// Sparse matrices, as far as models use them. cpu_fallback would look for dense kernels.
Tensor sparse_to(const Tensor& matrix, Device device) {
  if (!matrix.defined() || matrix.device() == device) return matrix;
  const c10::Layout layout = matrix.layout();
  if (layout == at::kSparseCsr || layout == at::kSparseCsc) {
    const bool rows = layout == at::kSparseCsr;
    return at::_sparse_compressed_tensor_unsafe(
        (rows ? matrix.crow_indices() : matrix.ccol_indices()).to(device),
        (rows ? matrix.col_indices() : matrix.row_indices()).to(device), matrix.values().to(device),
        matrix.sizes(), matrix.options().device(device));
  }
  if (!matrix.is_sparse()) return matrix.to(device);
  return at::_sparse_coo_tensor_unsafe(matrix._indices().to(device), matrix._values().to(device),
                                       matrix.sizes())
      ._coalesced_(matrix.is_coalesced());
}

void run_sparse_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const InFallback in;
  const size_t count = op.schema().arguments().size();
  std::optional<Device> device;
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (value.toTensor().device().type() == kType) device = value.toTensor().device();
    value = sparse_to(value.toTensor(), Device(c10::DeviceType::CPU));
  }
  op.callBoxed(stack);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) value = sparse_to(value.toTensor(), *device);
  }
}

// One by one: torch's own kernels for any device come before a fallback, and they expect dense ones.
void also_on_cpu(torch::Library& m, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_cpu>());
  }
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  also_on_cpu(m, {"mm", "addmm", "clone", "_to_dense", "_to_sparse", "_to_sparse_csr"});
  m.impl("crow_indices", at::native::crow_indices_sparse_csr);
  m.impl("col_indices", at::native::col_indices_sparse_csr);
  m.impl("ccol_indices", at::native::ccol_indices_sparse_csr);
  m.impl("row_indices", at::native::row_indices_sparse_csr);
  m.impl("values", at::native::values_sparse_csr);
  m.impl("_nnz", at::native::_nnz_sparse_csr);
}
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  also_on_cpu(m, {"mm", "addmm", "_sparse_sparse_matmul", "_coalesce", "clone", "_to_dense", "_to_sparse_csr",
                  "_to_sparse_csc", "sparse_mask", "index_select", "mul.Tensor", "add.Tensor"});
  m.impl("_sparse_coo_tensor_with_dims", at::native::new_with_dims_sparse);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
}

// Autocast: products in low precision, what CUDA keeps in float32 in float32, the rest as it comes.
#define LOW_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FULL_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1,
                   m){AT_FORALL_LOWER_PRECISION_FP(LOW_PRECISION) AT_FORALL_FP32(FULL_PRECISION)}

// What __init__.py needs of the default generators.
TORCH_LIBRARY(standin, m) {
  m.def("seed(int device, int seed) -> ()", [](int64_t device, int64_t seed) {
    at::Generator(default_generator(DeviceIndex(device))).set_current_seed(uint64_t(seed));
  });
  m.def("get_rng_state(int device) -> Tensor",
        [](int64_t device) { return default_generator(DeviceIndex(device)).get_state(); });
  m.def("set_rng_state(int device, Tensor state) -> ()", [](int64_t device, const Tensor& state) {
    at::Generator(default_generator(DeviceIndex(device))).set_state(state);
  });
}

struct Registers {
  Registers() { at::RegisterPrivateUse1HooksInterface(new Hooks); }
} registers;

}  // namespace
}  // namespace standin

// ------------------------------------------------------------------------------ for __init__.py, by ctypes

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int standin_devices() { return standin::kDevices; }
EXPORT int standin_in_bad_fork() { return standin::in_bad_fork(); }
EXPORT int64_t standin_total_memory(int device) { return standin::memory_of(device).total; }
EXPORT void standin_limit_memory(int device, int64_t bytes) { standin::memory_of(device).limit = bytes; }
// How often the host has waited for the device.
EXPORT int64_t standin_waits() { return standin::waits; }
EXPORT int64_t standin_launches() { return emulation::record.launches; }
// Forgets device-side assertions, which CUDA never does.
EXPORT void standin_clear() { emulation::clear(); }
// How the emulation schedules threads: see emulation::Settings.
EXPORT void standin_schedule(int policy, uint64_t seed) {
  emulation::settings.policy = emulation::Policy(policy);
  emulation::settings.seed = seed;
}
EXPORT int standin_read_on_host(const void* pointer) { return *static_cast<const volatile char*>(pointer); }
