#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

template <>
inline constexpr int kEnumSize<PoolMode> = 3;

/// The fields of both directions.
struct PoolingFields {
  Recorder geometry;
  PoolMode mode = PoolMode::kMax;
  DType dtype = kFloat32;
  LayoutPtr x_layout = nullptr;

  int64_t sum_length() const { return geometry.taps(); }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("geometry", self.geometry);
    visitor("mode", self.mode);
    visitor("dtype", self.dtype);
    Self::VisitSaved(self, visitor);
    visitor("x_layout", self.x_layout);
  }
};

/// Input: x. Outputs: y, and for a maximum in training its positions: int32 in y's shape, (d ·
/// height + h) · width + w of the first maximum, of the first NaN where there are NaNs, or -1 for a
/// window that sees no element of x. All implementations give the same positions.
struct PoolingForwardSpec : PoolingFields {
  bool save = false;

  const char* op() const { return "PoolingForward"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class Visitor>
  static void VisitSaved(Self& self, Visitor& visitor) {
    visitor("save", self.save);
  }
};

/// Inputs: dy; for a maximum also x and the positions. Without positions the kernel finds them from
/// x. With positions, recorded steps leave x out. Output: dx, in x's layout where x is given.
struct PoolingBackwardSpec : PoolingFields {
  bool saved = false;
  LayoutPtr dy_layout = nullptr;

  const char* op() const { return "PoolingBackward"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class Visitor>
  static void VisitSaved(Self& self, Visitor& visitor) {
    visitor("saved", self.saved);
  }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    PoolingFields::VisitFields(self, visitor);
    visitor("dy_layout", self.dy_layout);
  }
};

}  // namespace singa
