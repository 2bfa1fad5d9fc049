// What the sanitizers have to know about fibers. Everything here is empty without them.
#pragma once

#include <pthread.h>

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace emulation {

// Accesses between begin and end are not looked at for races.
inline void begin_unseen() {
#if defined(__SANITIZE_THREAD__)
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}
inline void end_unseen() {
#if defined(__SANITIZE_THREAD__)
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

// What happened before a release of a token happens before what follows an acquire of it.
inline void release([[maybe_unused]] void* token) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(token);
#endif
}
inline void acquire([[maybe_unused]] void* token) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(token);
#endif
}

// Called when a sanitizer ends the process.
inline void on_death([[maybe_unused]] void (*callback)()) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback(callback);
#endif
}

// A fiber is unseen whenever it does not run, from its birth on: the first thing it has to do is
// end_unseen().
class FiberOfSanitizer {
 public:
  // For a new fiber on this stack, or one that starts over.
  void make(void* stack, size_t bytes) {
    stack_ = stack;
    bytes_ = bytes;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    if (thread_ != nullptr) {
      on_it([] { end_unseen(); });
      __tsan_destroy_fiber(thread_);
    }
    thread_ = __tsan_create_fiber(0);
    on_it([] { begin_unseen(); });
#endif
  }

  // On behalf of a fiber that does not run.
  void release([[maybe_unused]] void* token) {
#if defined(__SANITIZE_THREAD__)
    on_it([=] { emulation::release(token); });
#endif
  }

  // For the thread that calls.
  void make_host() {
#if defined(__SANITIZE_ADDRESS__)
    if (stack_ != nullptr) return;  // to ask takes long
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack_, &bytes_);
    pthread_attr_destroy(&attributes);
#endif
#if defined(__SANITIZE_THREAD__)
    thread_ = __tsan_get_current_fiber();
#endif
  }

  // Right before the switch. Inlined, because ThreadSanitizer would count a return on the other fiber.
  __attribute__((always_inline)) void leave([[maybe_unused]] const FiberOfSanitizer& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack_, to.stack_, to.bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.thread_, __tsan_switch_to_fiber_no_sync);
#endif
  }

  // Right after the switch.
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
  }

 private:
#if defined(__SANITIZE_THREAD__)
  template <class Call>
  void on_it(const Call& call) {
    void* self = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(thread_, __tsan_switch_to_fiber_no_sync);
    call();
    __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
  }
#endif

  void* stack_ = nullptr;
  size_t bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* thread_ = nullptr;
};

}  // namespace emulation
