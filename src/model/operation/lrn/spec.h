#pragma once

#include <cstdint>
#include <vector>

#include "model/dispatch/spec.h"
#include "model/operation/saved_form.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// The window of channel c: the `size` channels [c − below, c + above]. It is centred where size is
/// odd. Where size is even it has one more channel below than above, as in PyTorch.
struct LrnWindow {
  explicit LrnWindow(int64_t size) : below(size / 2), above((size - 1) / 2) {}
  int64_t below, above;
};

/// The fields of both directions.
struct LrnFields {
  Shape shape;  // of x: (N, C, ...)
  DType dtype = kFloat32;
  int64_t size = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  LayoutPtr x_layout = nullptr;

  int64_t sum_length() const { return size; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("size", self.size);
    visitor("alpha", self.alpha);
    visitor("beta", self.beta);
    visitor("k", self.k);
    Self::VisitSaved(self, visitor);
    visitor("x_layout", self.x_layout);
  }
};

/// Input: x. Outputs: y, and in training a tensor for backward. Its common form is the base
/// k + alpha / size · Σ x² of the power, in x's shape: float32 for the 16-bit types, else x's type.
struct LrnForwardSpec : LrnFields {
  bool save = false;

  const char* op() const { return "LrnForward"; }
  void CheckCall(CallChecker& call) const;
  bool comparable(size_t output) const { return output == 0; }
  template <class Self, class Visitor>
  static void VisitSaved(Self& self, Visitor& visitor) {
    visitor("save", self.save);
  }
};

/// Inputs: dy, x, and the tensor that forward saved (or empty). Output: dx.
struct LrnBackwardSpec : LrnFields {
  SavedForm saved = SavedForm::kNone;
  LayoutPtr saved_layout = nullptr;

  const char* op() const { return "LrnBackward"; }
  void CheckCall(CallChecker& call) const;
  /// Bounds of the terms that each output sums (norm_tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  template <class Self, class Visitor>
  static void VisitSaved(Self& self, Visitor& visitor) {
    visitor("saved", self.saved);
    visitor("saved_layout", self.saved_layout);
  }
};

}  // namespace singa
