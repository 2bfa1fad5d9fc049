// A stack with a function on it that can be left and entered again. Hand-written where we can: swapcontext
// costs two system calls, and AddressSanitizer forgets the stack's red zones at every one.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#define EMULATION_UCONTEXT 1
#endif

#if defined(EMULATION_UCONTEXT)
#include <ucontext.h>
#else
extern "C" void emulation_switch(void** from, void* to);
// What a function call must preserve goes to the stack that is left: six registers and the floating-point
// settings.
asm(R"(
.text
.type emulation_switch, @function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch, . - emulation_switch
)");
#endif

namespace emulation {

class Context {
 public:
  // The next switch to it calls entry(), which must not return.
  void make(char* stack, size_t bytes, void (*entry)()) {
#if defined(EMULATION_UCONTEXT)
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#else
    // From the top: a return address that is never used, entry, and zeros for the six registers.
    uint64_t* top =
        reinterpret_cast<uint64_t*>(stack + bytes) - 1;  // as after a call: 8 past a multiple of 16
    top[0] = 0;
    top[-1] = reinterpret_cast<uint64_t>(entry);
    for (int i = 2; i <= 7; ++i) top[-i] = 0;
    uint32_t settings[2] = {};
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(settings[0]), "=m"(settings[1]));
    top[-8] = settings[0] | uint64_t(settings[1]) << 32;
    pointer_ = top - 8;
#endif
  }

  __attribute__((always_inline)) void switch_to(Context& to) {
#if defined(EMULATION_UCONTEXT)
    swapcontext(&context_, &to.context_);
#else
    emulation_switch(&pointer_, to.pointer_);
#endif
  }

 private:
#if defined(EMULATION_UCONTEXT)
  ucontext_t context_;
#else
  void* pointer_ = nullptr;
#endif
};

}  // namespace emulation
