// Lets a library that a new compiler built load on an older system (manylinux_2_28: glibc 2.28 and the
// libstdc++ of GCC 8).
//
// The headers of libstdc++ since GCC 11 call functions that an older libstdc++.so does not have. torch's
// headers use std::stringstream and std::shared_ptr, so our own sources cannot avoid them. Here are the same
// functions, compiled from the same headers, in a static library that no other library sees (--exclude-libs).
// Red Hat's compilers, which make manylinux wheels, have them in libstdc++_nonshared.a for the same reason.
// Only strings and standard exceptions leave our libraries; their layout and type are the system's.
#include <new>
#include <sstream>

#if defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE >= 11

// Default constructors are GLIBCXX_3.4.26, str() with a qualifier is GLIBCXX_3.4.29.
template class std::basic_stringbuf<char>;
template class std::basic_ostringstream<char>;
template class std::basic_stringstream<char>;

namespace std {
// GLIBCXX_3.4.29. Weak: a compiler's own copy is as good.
[[gnu::weak]] void __throw_bad_array_new_length() { throw std::bad_array_new_length(); }
}  // namespace std

#if __has_include(<sys/single_threaded.h>)
// GLIBC_2.32. std::shared_ptr counts without atomics where this is true; false is right for every process.
extern "C" [[gnu::visibility("hidden")]] char __libc_single_threaded;
char __libc_single_threaded = 0;
#endif

#endif
