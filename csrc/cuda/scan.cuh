// Inclusive sums by CUB whose terms are computed where they are read and whose results are used where they
// would be written: no kernel before the scan and none after it.
#pragma once

#include <cub/device/device_scan.cuh>
#include <iterator>

#include "launch.cuh"

namespace gpn::cuda {

// What CUB reads at i: term(i).
template <class T, class Term>
struct Terms {
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = int64_t;
  using pointer = const T*;
  using reference = T;

  Term term;
  int64_t at = 0;

  __device__ T operator*() const { return term(at); }
  __device__ T operator[](int64_t i) const { return term(at + i); }
  __host__ __device__ Terms operator+(int64_t i) const { return {term, at + i}; }
  __host__ __device__ Terms& operator+=(int64_t i) {
    at += i;
    return *this;
  }
};

// What CUB writes at i goes to use(i, sum).
template <class T, class Use>
struct Uses {
  struct Place {
    Use use;
    int64_t at;
    __device__ const Place& operator=(T sum) const {
      use(at, sum);
      return *this;
    }
  };
  using iterator_category = std::random_access_iterator_tag;
  using value_type = void;
  using difference_type = int64_t;
  using pointer = void;
  using reference = Place;

  Use use;
  int64_t at = 0;

  __device__ Place operator*() const { return {use, at}; }
  __device__ Place operator[](int64_t i) const { return {use, at + i}; }
  __host__ __device__ Uses operator+(int64_t i) const { return {use, at + i}; }
  __host__ __device__ Uses& operator+=(int64_t i) {
    at += i;
    return *this;
  }
};

// use(i, term(0) + ... + term(i)) for all i. CUB reads a stretch of terms before it writes there: use(i) may
// change what term(i) reads, and nothing that other terms read.
template <class T, class Term, class Use, class Scratch>
void scan(const Launcher& launch, int64_t count, Term term, Use use, const Scratch& scratch) {
  if (count == 0) return;
  const Terms<T, Term> terms{term};
  const Uses<T, Use> uses{use};
  size_t bytes = 0;
  Launcher::check(cub::DeviceScan::InclusiveSum(nullptr, bytes, terms, uses, count, launch.stream));
  void* storage = scratch(int64_t(bytes));
  Launcher::check(cub::DeviceScan::InclusiveSum(storage, bytes, terms, uses, count, launch.stream));
}

}  // namespace gpn::cuda
