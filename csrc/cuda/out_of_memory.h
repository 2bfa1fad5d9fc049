// An exception that Python knows as torch.OutOfMemoryError. torch's C interface has no word for it, so its
// constructor is looked up by name; where there is none (torch 2.10), it is a RuntimeError.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

extern "C" void* __cxa_allocate_exception(size_t bytes) noexcept;
extern "C" void __cxa_throw(void* exception, void* type, void (*destroy)(void*));

namespace gpn::cuda {

[[noreturn]] inline void throw_out_of_memory(const std::string& text) {
  struct Location {
    const char* function;
    const char* file;
    uint32_t line;
  };
  using Construct = void (*)(void*, Location, std::string);
  if (void* library = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY)) {
    const auto construct = reinterpret_cast<Construct>(
        dlsym(library,
              "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_string"
              "IcSt11char_traitsIcESaIcEEE"));
    void* type = dlsym(library, "_ZTIN3c1016OutOfMemoryErrorE");
    if (construct != nullptr && type != nullptr) {
      void* exception = __cxa_allocate_exception(4096);  // several times its size
      construct(exception, {__func__, __FILE__, __LINE__}, text);
      __cxa_throw(exception, type, nullptr);  // without a destructor: the text is never freed
    }
  }
  throw std::runtime_error(text);
}

}  // namespace gpn::cuda
