#pragma once

#include "model/operation/saved_form.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

/// Input: x. Outputs: y, and for a maximum in training what backward needs. The common form of that
/// is int32 in y's shape: the position h · width + w of the maximum (the first one; the last NaN
/// where there are NaNs), or -1 for a window that no element of x lies in.
struct PoolingForwardSpec {
  Recorder geometry;
  PoolMode mode = PoolMode::kMax;
  DType dtype = kFloat32;
  bool save = false;
  LayoutPtr x_layout;

  const char* op() const { return "PoolingForward"; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("geometry", self.geometry);
    visitor("mode", self.mode);
    visitor("dtype", self.dtype);
    visitor("save", self.save);
    visitor("x_layout", self.x_layout);
  }
};

/// Inputs: dy, and for a maximum x and what forward saved (or empty). Output: dx.
struct PoolingBackwardSpec {
  Recorder geometry;
  PoolMode mode = PoolMode::kMax;
  DType dtype = kFloat32;
  SavedForm saved = SavedForm::kNone;
  LayoutPtr saved_layout;
  LayoutPtr x_layout;   // dx takes it, where x is given
  LayoutPtr dy_layout;  // or follows this one

  const char* op() const { return "PoolingBackward"; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("geometry", self.geometry);
    visitor("mode", self.mode);
    visitor("dtype", self.dtype);
    visitor("saved", self.saved);
    visitor("saved_layout", self.saved_layout);
    visitor("x_layout", self.x_layout);
    visitor("dy_layout", self.dy_layout);
  }
};

}  // namespace singa
