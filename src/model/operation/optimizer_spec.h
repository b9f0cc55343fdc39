#pragma once

#include "singa/core/dtype.h"

namespace singa {

enum class OptimizerKind : int { kSgd = 0, kRmsProp = 1, kAdaGrad = 2, kAdam = 3 };

/// One update of n parameters. Inputs: n parameters, n gradients, then n of each state; where the
/// gradients come times a loss scale also `squares` and `loss_scale` (singa/operation/optimizer.h).
/// Outputs: the parameters and the states, written in place; as they were where the gradients are
/// not finite. States are of the parameters' compute type
/// (float32 for 16-bit floats). Parameter, gradient and states of one index are all contiguous, or
/// all in one opaque layout.
///
/// Scalars: v[0] learning rate, v[1] weight decay, then
///   SGD: v[2] momentum, v[3] dampening   RMSProp: v[2] rho, v[3] epsilon   AdaGrad: v[3] epsilon
///   Adam: v[2] beta1, v[3] beta2, v[4] epsilon, v[5] 1 − beta1^step, v[6] sqrt(1 − beta2^step)
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSgd;
  DType dtype = kFloat32;     ///< of the parameters
  DType gradient = kFloat32;  ///< of the gradients
  int states = 0;
  bool nesterov = false;
  bool first = false;      ///< SGD: the momentum buffer starts as the gradient
  bool decoupled = false;  ///< Adam: weight decay apart from the gradient
  bool scaled = false;     ///< gradients come times a loss scale

  const char* op() const {
    switch (kind) {
      case OptimizerKind::kSgd:
        return "SgdUpdate";
      case OptimizerKind::kRmsProp:
        return "RmsPropUpdate";
      case OptimizerKind::kAdaGrad:
        return "AdaGradUpdate";
      case OptimizerKind::kAdam:
        return "AdamUpdate";
    }
    return "Optimizer";
  }

  /// n, of so many inputs.
  size_t count(size_t inputs) const {
    return (inputs - (scaled ? 2 : 0)) / static_cast<size_t>(2 + states);
  }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("kind", self.kind);
    visitor("dtype", self.dtype);
    visitor("gradient", self.gradient);
    visitor("states", self.states);
    visitor("nesterov", self.nesterov);
    visitor("first", self.first);
    visitor("decoupled", self.decoupled);
    visitor("scaled", self.scaled);
  }
};

/// What follows an update with a loss scale. Inputs: `squares`, `loss_scale`. Output: the latter,
/// written in place. Scalars: v[0] growth factor, v[1] backoff factor, v[2] growth interval.
struct LossScaleSpec {
  const char* op() const { return "UpdateLossScale"; }

  template <class Self, class Visitor>
  static void VisitFields(Self&, Visitor&) {}
};

/// Sum of squares of all elements of tensors of one type. Output: one float64.
struct SumSquareSpec {
  DType dtype = kFloat32;

  const char* op() const { return "GlobalNorm"; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("dtype", self.dtype);
  }
};

}  // namespace singa
