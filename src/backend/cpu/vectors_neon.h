#pragma once

// Vectors of 8 floats, with NEON. Defines SINGA_TARGET, as the headers for other processors do.

#if defined(__aarch64__)

#include <cstdint>
#include <cstring>

#include "backend/cpu/vectors_any.h"

#define SINGA_TARGET  // NEON is part of the baseline

namespace singa::cpu {
namespace {

/// Vectors of 8 floats, in two registers.
struct Vectors : AnyVectors<8> {
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
  using AnyVectors::Load;
  /// In lane i the value of lane order[i].
  SINGA_INLINE static Type Load(const float* from, const Order& order) {
    const Type v = Load(from);
    return {__builtin_shuffle(v.low, v.high, order.low),
            __builtin_shuffle(v.low, v.high, order.high)};
  }

  /// v in registers, where the compiler would load it again for each use.
  SINGA_INLINE static Type Held(Type v) {
    __asm__("" : "+w"(v.low), "+w"(v.high));
    return v;
  }
  /// v, or the limit that it is beyond. NaN stays.
  SINGA_INLINE static Type Clip(const Type& v, const Type& low, const Type& high) {
    const auto clip = [](auto x, auto least, auto most) SINGA_INLINE_LAMBDA {
      x = x < least ? least : x;
      return x > most ? most : x;
    };
    return {clip(v.low, low.low, high.low), clip(v.high, low.high, high.high)};
  }
  SINGA_INLINE static Type Rectify(Type v) {
    v.Rectify();
    return v;
  }
};

}  // namespace
}  // namespace singa::cpu

#endif
