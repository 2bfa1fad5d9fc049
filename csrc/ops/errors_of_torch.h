// What torch says when one of its own functions fails in a kernel. Its C interface reports a failure by a
// code, and the headers turn that into an exception with the text of our call in it; the exception that torch
// had, above all 'out of memory', is lost. Here its text is found again, as far as the torch at hand can
// tell.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

// Since torch 2.11; null before.
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

namespace gpn {

// A kernel whose errors are those of torch where torch failed in it.
template <class Device, auto kernel>
struct Telling;

template <class Device, class Result, class... Arguments, Result (*kernel)(Arguments...)>
struct Telling<Device, kernel> {
  static Result call(Arguments... arguments) {
    try {
      return kernel(std::forward<Arguments>(arguments)...);
    } catch (const std::runtime_error& error) {
      const std::string ours = error.what();
      const bool no_room = ours.starts_with("out of memory: ");  // of new_empty()
      if (!no_room && ours.find(" API call failed at ") == std::string::npos) throw;
      const std::string torchs = torch_exception_get_what_without_backtrace == nullptr
                                     ? "a call of torch failed, most likely for lack of memory"
                                     : torch_exception_get_what_without_backtrace();
      const std::string text = no_room ? ours + " (" + torchs + ")" : torchs;
      if (text.find("out of memory") != std::string::npos) Device::throw_out_of_memory(text);
      throw std::runtime_error(text);
    }
  }
};

}  // namespace gpn
