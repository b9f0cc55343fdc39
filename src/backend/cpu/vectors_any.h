#pragma once

// Vectors of any number of floats, for the loops that vectors_avx2.h is for, where GCC chooses the
// instructions.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/vector.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

template <int kCount>
struct AnyVectors {
  using Type = Vec<kCount>;
  static constexpr int kLanes = kCount;
  using Mask = int64_t;  // number of lanes

  static Mask First(int64_t n) { return n; }

  template <class T>
  SINGA_INLINE static Type Load(const T* from) {
    Type v;
    cpu::Load(v, from);
    return v;
  }
  template <class T>
  SINGA_INLINE static Type Load(const T* from, Mask count) {
    T lanes[kLanes] = {};
    std::copy_n(from, count, lanes);
    return Load(lanes);
  }
  template <class T>
  SINGA_INLINE static void Store(T* to, const Type& v) {
    cpu::Store(to, v);
  }
  template <class T>
  SINGA_INLINE static void Store(T* to, const Type& v, Mask count) {
    T lanes[kLanes];
    cpu::Store(lanes, v);
    std::copy_n(lanes, count, to);
  }
  template <class T>
  SINGA_INLINE static void Stream(T* to, const Type& v) {
    cpu::Store(to, v);
  }
  static void Fence() {}

  SINGA_INLINE static Type Add(const Type& a, const Type& b) { return a + b; }
  SINGA_INLINE static Type Subtract(const Type& a, const Type& b) { return a - b; }
  SINGA_INLINE static Type Multiply(const Type& a, const Type& b) { return a * b; }
  SINGA_INLINE static Type All(float value) { return value - Type{}; }
  /// a · b + c
  SINGA_INLINE static Type MultiplyAdd(const Type& a, const Type& b, const Type& c) {
    return a * b + c;
  }
};

}  // namespace
}  // namespace singa::cpu
