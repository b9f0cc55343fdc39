#pragma once

// Common to all elementwise kernels: reads strided operands of any type, calls a function over
// contiguous runs of one compute type, and writes a strided result of any type.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/device/parallel.h"
#include "core/tensor/convert_chunk.h"
#include "core/tensor/stored_size.h"
#include "singa/core/tensor.h"

namespace singa::reference {

/// Reference to a callable (const C* const* in, C* out, int64_t n), which must outlive it.
template <class C>
class RunFunction {
 public:
  template <class F>
  RunFunction(const F& f)  // NOLINT(google-explicit-constructor): made from a lambda at the call
      : context_(&f), call_([](const void* context, const C* const* in, C* out, int64_t n) {
          (*static_cast<const F*>(context))(in, out, n);
        }) {}
  void operator()(const C* const* in, C* out, int64_t n) const { call_(context_, in, out, n); }

 private:
  const void* context_;
  void (*call_)(const void*, const C* const*, C*, int64_t);
};

/// Minimum elements per thread for functions of the C library (exp, tanh, ...).
inline constexpr int64_t kMathGrain = kParallelGrain / 8;

/// Calls `run` in parallel on runs of elements that together cover `out`. C is float, double,
/// int32_t or int64_t; operands of other types are converted. Inputs (at most 4) have out's shape
/// and may have strides of zero; an input may be `out` itself. If `out` has an opaque layout, the
/// inputs have the same one, and the padding is computed like any other element.
template <class C>
void Map(std::span<const Tensor> in, const Tensor& out, int64_t grain, RunFunction<C> run);

/// Like Map, but input 0 is a condition: it is read as 1 where it is not zero, else as 0.
template <class C>
void MapWithCondition(std::span<const Tensor> in, const Tensor& out, int64_t grain,
                      RunFunction<C> run);

// The loops. `ivdep` is valid: an input may be the output itself, but never overlaps it otherwise.

template <class C, class F>
SINGA_MULTI_ISA void Loop(const C* x, C* y, int64_t n, F f) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}
template <class C, class F>
SINGA_MULTI_ISA void Loop(const C* a, const C* b, C* y, int64_t n, F f) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
}
template <class C, class F>
SINGA_MULTI_ISA void Loop(const C* a, const C* b, const C* c, C* y, int64_t n, F f) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i], c[i]);
}

template <class F, class C>
inline constexpr int kOperandsOf = std::is_invocable_v<F, C>      ? 1
                                   : std::is_invocable_v<F, C, C> ? 2
                                                                  : 3;

/// y = f(x...) for arithmetic that vectorises. Compiled for several instruction sets.
template <class C, class F>
void MapArithmetic(std::span<const Tensor> in, const Tensor& out, F f) {
  Map<C>(in, out, kParallelGrain, [f](const C* const* x, C* y, int64_t n) {
    if constexpr (std::is_invocable_v<F, C>) {
      Loop(x[0], y, n, f);
    } else if constexpr (std::is_invocable_v<F, C, C>) {
      Loop(x[0], x[1], y, n, f);
    } else {
      Loop(x[0], x[1], x[2], y, n, f);
    }
  });
}

/// Likewise, for functions of some hundred instructions. So few of their loads are on their way at
/// a time that memory would not keep up, so the next block is fetched while one is computed (GELU
/// of 16 MB: 0.7 instead of 2.1 ns an element). What fits in caches is quicker without (SiLU by
/// 4 %). Not inlined: short functions beside it would save registers for it.
template <class C, class F>
[[gnu::noinline]] void MapLongArithmetic(std::span<const Tensor> in, const Tensor& out, F f) {
  constexpr int kOperands = kOperandsOf<F, C>;
  constexpr size_t kCached = size_t{8} << 20;
  const bool is_far = StoredBytes(out) * (kOperands + 1) >= kCached;
  constexpr int64_t kLine = 64 / sizeof(C), kBlock = 16 * kLine;
  Map<C>(in, out, kParallelGrain, [f, is_far](const C* const* x, C* y, int64_t n) {
    const int64_t block = is_far ? kBlock : n;
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t end = std::min(begin + block, n), next = std::min(end + block, n);
      for (int64_t i = end; i < next; i += kLine) {
        for (int k = 0; k < kOperands; ++k) __builtin_prefetch(x[k] + i);
        __builtin_prefetch(y + i, 1);
      }
      if constexpr (kOperands == 1) {
        Loop(x[0] + begin, y + begin, end - begin, f);
      } else if constexpr (kOperands == 2) {
        Loop(x[0] + begin, x[1] + begin, y + begin, end - begin, f);
      } else {
        Loop(x[0] + begin, x[1] + begin, x[2] + begin, y + begin, end - begin, f);
      }
    }
  });
}

/// Whether |x[i]| > limit anywhere.
bool HasBeyond(const float* x, int64_t n, float limit);

/// y = f(x...) of floats, for arithmetic that vectorises, but where the last operand is beyond
/// `limit`: `far(x...)`, which may call the C library. Each result depends on its own operands
/// alone.
template <class F, class Far>
void MapNearArithmetic(std::span<const Tensor> in, const Tensor& out, F f, float limit, Far far) {
  constexpr int kOperands = kOperandsOf<F, float>;
  constexpr int64_t kBlock = 256;
  const auto call = [](const auto& function, const auto& x, int64_t i) {
    if constexpr (kOperands == 1)
      return function(x[0][i]);
    else
      return function(x[0][i], x[1][i]);
  };
  Map<float>(in, out, kParallelGrain, [=](const float* const* x, float* y, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      const float* at[kOperands];
      for (int k = 0; k < kOperands; ++k) at[k] = x[k] + begin;
      // An operand may be the result itself, so it is kept where it is needed again.
      float kept[kOperands][kBlock];
      const bool beyond = HasBeyond(at[kOperands - 1], count, limit);
      for (int k = 0; beyond && k < kOperands; ++k) std::copy_n(at[k], count, kept[k]);
      if constexpr (kOperands == 1)
        Loop(at[0], y + begin, count, f);
      else
        Loop(at[0], at[1], y + begin, count, f);
      for (int64_t i = 0; beyond && i < count; ++i)
        if (std::fabs(kept[kOperands - 1][i]) > limit) y[begin + i] = call(far, kept, i);
    }
  });
}

/// y = f(x...) for functions that call the C library for each element.
template <class C, class F>
void MapMath(std::span<const Tensor> in, const Tensor& out, F f) {
  Map<C>(in, out, kMathGrain, [f](const C* const* x, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_invocable_v<F, C>) {
        y[i] = f(x[0][i]);
      } else if constexpr (std::is_invocable_v<F, C, C>) {
        y[i] = f(x[0][i], x[1][i]);
      } else {
        y[i] = f(x[0][i], x[1][i], x[2][i]);
      }
    }
  });
}

}  // namespace singa::reference
