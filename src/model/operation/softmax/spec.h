#pragma once

#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/tensor.h"

namespace singa {

/// Softmax along the middle axis of (outer, axis, inner).
struct SoftmaxSpec {
  int64_t outer = 1;
  int64_t axis = 1;
  int64_t inner = 1;
  DType dtype = kFloat32;
  bool log = false;

  const char* op() const { return log ? "LogSoftmax" : "Softmax"; }
  int64_t size() const { return outer * axis * inner; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", {size()}, dtype, {.flat = true});
    visit.Output("y", visit.ShapeOfInput(0), dtype, {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;
  int64_t sum_length() const { return axis; }
  static constexpr bool kMeasured = true;
  SINGA_FIELDS(outer, axis, inner, dtype, log);
};

struct SoftmaxBackwardSpec : SoftmaxSpec {
  const char* op() const { return log ? "LogSoftmaxBackward" : "SoftmaxBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", {size()}, dtype, {.flat = true});
    visit.Input("y", {size()}, dtype, {.flat = true});
    visit.Output("dx", visit.ShapeOfInput(0), dtype, {.flat = true});
  }
  void Sample(spot::Sampler& sampler) const;
  /// Bounds of the terms that each output sums (norm/tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
};

}  // namespace singa
