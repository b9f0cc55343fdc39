#include "distributed/collectives/ordered_sum.h"

#include <algorithm>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/formula/arithmetic.h"

namespace singa::distributed {
namespace {

/// Elements of a block; its sum stays in the first-level cache.
constexpr int64_t kBlock = 2048;

// Loops of their own: in one expression the compiler could contract a product of the first term
// into the addition of the second, which accumulation does not do.

template <class C, class T>
SINGA_MULTI_ISA void Multiply(C factor, const T* from, C* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = arithmetic::Mul(factor, Convert<C>(from[i]));
}

template <class C, class T>
SINGA_MULTI_ISA void AddProduct(C factor, const T* from, C* sum, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    sum[i] = arithmetic::Add(sum[i], arithmetic::Mul(factor, Convert<C>(from[i])));
}

template <class C, class T>
SINGA_MULTI_ISA void Round(const C* sum, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Convert<T>(sum[i]);
}

template <class T>
void Sum(double factor, const void* const* from, int64_t count, int64_t n,
         const ComputeType<T>* before, ComputeType<T>* sums, T* to) {
  using C = ComputeType<T>;
  const C f = Convert<C>(factor);
  alignas(64) C sum[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    const auto term = [&](int64_t r) { return static_cast<const T*>(from[r]) + begin; };
    if (before) {
      std::copy_n(before + begin, size, sum);
    } else {
      Multiply(f, term(0), sum, size);
    }
    for (int64_t r = before ? 0 : 1; r < count; ++r) AddProduct(f, term(r), sum, size);
    if (to) {
      Round(sum, to + begin, size);
    } else {
      std::copy_n(sum, size, sums + begin);
    }
  }
}

}  // namespace

bool HasOrderedSum(DType dtype) {
  return dtype == kFloat32 || dtype == kFloat64 || dtype == kFloat16 || dtype == kBFloat16 ||
         dtype == kInt32 || dtype == kInt64;
}

void AddToSum(DType dtype, double factor, const void* const* from, int64_t count, int64_t n,
              const void* before, void* sums, void* to) {
  Check<TypeError>(HasOrderedSum(dtype), "all_reduce", "elements of type ", DTypeName(dtype),
                   " cannot be added; convert them to a float type, int32 or int64");
  SwitchAll(dtype, "all_reduce", [&]<class T>() {
    using C = ComputeType<T>;
    if constexpr (kIsFloatType<T> || std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>)
      Sum<T>(factor, from, count, n, static_cast<const C*>(before), static_cast<C*>(sums),
             static_cast<T*>(to));
  });
}

void OrderedSum(DType dtype, double factor, const void* const* from, int64_t count, int64_t n,
                void* to) {
  AddToSum(dtype, factor, from, count, n, nullptr, nullptr, to);
}

size_t SumBytes(DType dtype) { return std::max<size_t>(SizeOf(dtype), 4); }

}  // namespace singa::distributed
