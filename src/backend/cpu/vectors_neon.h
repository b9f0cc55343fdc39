#pragma once

// Vectors of 8 floats, with NEON. Defines SINGA_TARGET, as the headers for other processors do.

#if defined(__aarch64__)

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/vector.h"
#include "singa/core/half.h"

#define SINGA_TARGET  // NEON is part of the baseline

namespace singa::cpu {
namespace {

/// Vectors of 8 floats, in two registers.
struct Vectors {
  using Type = Vec<8>;
  static constexpr int kLanes = 8;
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
  /// A number of a lane for each lane.
  struct Order {
    using Half __attribute__((vector_size(16))) = int32_t;
    Half low, high;
  };
  SINGA_INLINE static Order LoadOrder(const int32_t* from) {
    Order order;
    std::memcpy(&order, from, sizeof(order));
    return order;
  }
  /// In lane i the value of lane order[i].
  SINGA_INLINE static Type Load(const float* from, const Order& order) {
    const Type v = Load(from);
    return {__builtin_shuffle(v.low, v.high, order.low),
            __builtin_shuffle(v.low, v.high, order.high)};
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

  /// v in registers, where the compiler would load it again for each use.
  SINGA_INLINE static Type Held(Type v) {
    __asm__("" : "+w"(v.low), "+w"(v.high));
    return v;
  }
  SINGA_INLINE static Type Add(const Type& a, const Type& b) { return a + b; }
  SINGA_INLINE static Type Subtract(const Type& a, const Type& b) { return a - b; }
  SINGA_INLINE static Type Multiply(const Type& a, const Type& b) {
    return {a.low * b.low, a.high * b.high};
  }
  SINGA_INLINE static Type All(float value) {
    const Type::Half half = value - Type::Half{};
    return {half, half};
  }
  /// v, or the limit that it is beyond. NaN stays.
  SINGA_INLINE static Type Clip(const Type& v, const Type& low, const Type& high) {
    const auto clip = [](auto x, auto least, auto most) SINGA_INLINE_LAMBDA {
      x = x < least ? least : x;
      return x > most ? most : x;
    };
    return {clip(v.low, low.low, high.low), clip(v.high, low.high, high.high)};
  }
  /// a · b + c
  SINGA_INLINE static Type MultiplyAdd(const Type& a, const Type& b, const Type& c) {
    return Multiply(a, b) + c;
  }
  SINGA_INLINE static Type Rectify(Type v) {
    v.Rectify();
    return v;
  }
};

}  // namespace
}  // namespace singa::cpu

#endif
