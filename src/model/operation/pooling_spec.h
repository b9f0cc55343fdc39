#pragma once

#include "model/operation/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

template <>
inline constexpr int kEnumSize<PoolMode> = 3;

/// Input: x. Outputs: y, and for a maximum in training where it was found: int32 in y's shape, the
/// position h · width + w (of the first one; of the first NaN where there are NaNs), or -1 for a
/// window that sees no element of x. The same on every implementation.
struct PoolingForwardSpec {
  Recorder geometry;
  PoolMode mode = PoolMode::kMax;
  DType dtype = kFloat32;
  bool save = false;
  LayoutPtr x_layout = nullptr;

  const char* op() const { return "PoolingForward"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return geometry.kernel_h * geometry.kernel_w; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("geometry", self.geometry);
    visitor("mode", self.mode);
    visitor("dtype", self.dtype);
    visitor("save", self.save);
    visitor("x_layout", self.x_layout);
  }
};

/// Inputs: dy, and for a maximum x and what forward saved (or empty: found again from x); where
/// that is given, recorded steps leave x out. Output: dx, in x's layout where x is given.
struct PoolingBackwardSpec {
  Recorder geometry;
  PoolMode mode = PoolMode::kMax;
  DType dtype = kFloat32;
  bool saved = false;
  LayoutPtr x_layout = nullptr;
  LayoutPtr dy_layout = nullptr;

  const char* op() const { return "PoolingBackward"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return geometry.kernel_h * geometry.kernel_w; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("geometry", self.geometry);
    visitor("mode", self.mode);
    visitor("dtype", self.dtype);
    visitor("saved", self.saved);
    visitor("x_layout", self.x_layout);
    visitor("dy_layout", self.dy_layout);
  }
};

}  // namespace singa
