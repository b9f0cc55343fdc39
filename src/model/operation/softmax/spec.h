#pragma once

#include <cstdint>
#include <vector>

#include "model/dispatch/measure.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/tensor.h"

namespace singa {

/// Softmax along the middle axis of (outer, axis, inner). Input: x. Output: y.
struct SoftmaxSpec {
  int64_t outer = 1;
  int64_t axis = 1;
  int64_t inner = 1;
  DType dtype = kFloat32;
  bool log = false;

  const char* op() const { return log ? "LogSoftmax" : "Softmax"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return axis; }
  MeasuredCall Measured() const {
    const MeasuredTensor all{.shape = {outer, axis, inner}, .dtype = dtype};
    return {{all}, {all}};
  }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("outer", self.outer);
    visitor("axis", self.axis);
    visitor("inner", self.inner);
    visitor("dtype", self.dtype);
    visitor("log", self.log);
  }
};

/// Inputs: dy, y. Output: dx.
struct SoftmaxBackwardSpec : SoftmaxSpec {
  const char* op() const { return log ? "LogSoftmaxBackward" : "SoftmaxBackward"; }
  void CheckCall(CallChecker& call) const;
  MeasuredCall Measured() const {
    const MeasuredTensor all{.shape = {outer, axis, inner}, .dtype = dtype};
    return {{all, all}, {all}};
  }
  /// Bounds of the terms that each output sums (norm_tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
};

}  // namespace singa
