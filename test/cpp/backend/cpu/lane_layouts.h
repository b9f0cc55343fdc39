#pragma once

// Tensors in the layouts of our kernels: channels-last and in blocks of channels.

#include <cstring>

#include "core/device/instruction_set.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "singa/core/stats.h"
#include "support.h"

namespace singa::test {

using Tag = LaneTag;

inline constexpr Tag kTags[] = {Tag::kNhwc, Tag::kNChw16c, Tag::kNChw8c};

inline LayoutPtr LayoutOf(const Shape& shape, DType dtype, Tag tag) {
  return LaneLayout(shape, dtype, tag);
}

inline Tensor In(const Tensor& t, Tag tag) {
  return t.ToLayout(LayoutOf(t.shape(), t.data_type(), tag));
}

/// The layout's tag: whether t lies in it, and whether its padding is zero.
inline void ExpectIn(const Tensor& t, Tag tag, const char* what) {
  const LayoutPtr want = LayoutOf(t.shape(), t.data_type(), tag);
  EXPECT_TRUE(SameLayout(t.layout(), want))
      << what << " lies in " << LayoutName(t.layout()) << ", expected " << LayoutName(want);
  if (!t.layout()) return;
  // Packing writes zeros into the padding; nothing else may differ.
  const Tensor plain = t.Plain();
  std::vector<char> packed(t.layout()->bytes());
  t.layout()->Pack(plain.raw_data(), packed.data());
  EXPECT_EQ(std::memcmp(packed.data(), t.raw_data(), packed.size()), 0)
      << what << ": padding is not zero";
}

inline Vector Bound(const Vector& values, double relative) {
  double most = 0;
  for (double v : values)
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  return Vector(values.size(), relative * most);
}

/// Same values up to `relative` of the largest one, beyond the rounding to the type itself.
inline void ExpectSame(const Tensor& got, const Tensor& want, double relative, const char* what) {
  Vector values = Values(want), tolerance = Bound(values, relative);
  for (size_t i = 0; i < values.size(); ++i)
    tolerance[i] += 0.5 * Epsilon(want.data_type()) * std::abs(values[i]);
  ExpectNear(got, values, tolerance, what);
}

/// On older CPUs (or under ONEDNN_MAX_CPU_ISA) oneDNN lacks some kernels, and ours then take the
/// tensor as a plain one: the results are checked all the same.
inline bool HasAvx512() { return AllowedInstructionSet() >= InstructionSet::kAvx512; }

/// Empty where our kernel or oneDNN's takes it.
template <class Spec>
std::string Refusal(const Spec& spec) {
  std::string reasons;
  for (const char* name : {"cpu", "onednn"}) {
    const Kernel* kernel = FindKernel<Spec>(name);
    const PlanOrReason made = kernel ? kernel->Make(spec) : PlanOrReason::None("none was written");
    if (made) return "";
    reasons += made.reason() + "; ";
  }
  return reasons;
}

inline uint64_t Reorders() { return GetReorderStats().count; }

/// `got` is `want`, converted to its type.
inline void ExpectEqual(const Tensor& got, const Tensor& want, const char* what) {
  const Vector a = Values(got), b = Values(want.Plain().AsType(got.data_type()));
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
        << what << "[" << i << "] is " << a[i] << ", expected " << b[i];
}

}  // namespace singa::test
