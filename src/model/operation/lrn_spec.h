#pragma once

#include <cstdint>
#include <vector>

#include "model/operation/saved_form.h"
#include "model/operation/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// The channels [c − below, c + above] that count for channel c: `size` of them, centred where size
/// is odd, and one more below than above where it is even (as PyTorch does).
struct LrnWindow {
  explicit LrnWindow(int64_t size) : below(size / 2), above((size - 1) / 2) {}
  int64_t below, above;
};

/// Input: x. Outputs: y, and in training what backward needs. The common form of that is the base
/// k + alpha / size · Σ x² of the power, in x's shape; float32 for the 16-bit types, else x's type.
struct LrnForwardSpec {
  Shape shape;  // of x: (N, C, ...)
  DType dtype = kFloat32;
  int64_t size = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  bool save = false;
  LayoutPtr x_layout = nullptr;

  const char* op() const { return "LrnForward"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return size; }
  bool comparable(size_t output) const { return output == 0; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("size", self.size);
    visitor("alpha", self.alpha);
    visitor("beta", self.beta);
    visitor("k", self.k);
    visitor("save", self.save);
    visitor("x_layout", self.x_layout);
  }
};

/// Inputs: dy, x, and what forward saved (or empty). Output: dx.
struct LrnBackwardSpec {
  Shape shape;
  DType dtype = kFloat32;
  int64_t size = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  SavedForm saved = SavedForm::kNone;
  LayoutPtr saved_layout = nullptr;
  LayoutPtr x_layout = nullptr;

  const char* op() const { return "LrnBackward"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return size; }
  /// Of the terms of each output (magnitudes.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("size", self.size);
    visitor("alpha", self.alpha);
    visitor("beta", self.beta);
    visitor("k", self.k);
    visitor("saved", self.saved);
    visitor("saved_layout", self.saved_layout);
    visitor("x_layout", self.x_layout);
  }
};

}  // namespace singa
