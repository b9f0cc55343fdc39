#pragma once

#include "model/operation/spec.h"
#include "singa/core/dtype.h"

namespace singa {

enum class OptimizerKind : int { kSgd = 0, kRmsProp = 1, kAdaGrad = 2, kAdam = 3 };
template <>
inline constexpr int kEnumSize<OptimizerKind> = 4;

/// One update of n parameters. Inputs: n parameters, n gradients, n of each state, and then what
/// decides on the device, of UpdateConditions (singa/operation/optimizer.h): `squares`, where the
/// gradients come times a loss scale or are clipped, `loss_scale`, `numbers`.
/// Outputs: the parameters and the states, written in place; as they were where gradients that come
/// times a loss scale are not finite. States are of the parameters' compute type (float32 for
/// 16-bit floats), gradients each of a float type of its own. Parameter, gradient and states of one
/// index are all contiguous, or all in one opaque layout, but for its type.
///
/// Scalars: v[0] learning rate, v[1] weight decay, then
///   SGD: v[2] momentum, v[3] dampening   RMSProp: v[2] rho, v[3] epsilon   AdaGrad: v[3] epsilon
///   Adam: v[2] beta1, v[3] beta2, v[4] epsilon, v[5] 1 − beta1^step, v[6] sqrt(1 − beta2^step)
/// and v[7] the norm at which gradients are clipped, or 0. With a table of numbers v[0] multiplies
/// the table's learning rate, and v[2] to v[6] are the table's.
struct OptimizerSpec {
  static constexpr int kNumbers = 8, kRate = 0, kWeightDecay = 1, kOwnNumbers = 2, kClipNorm = 7;

  OptimizerKind kind = OptimizerKind::kSgd;
  DType dtype = kFloat32;  ///< of the parameters
  int states = 0;
  bool nesterov = false;
  bool first = false;      ///< SGD: the momentum buffer starts as the gradient
  bool decoupled = false;  ///< Adam: weight decay apart from the gradient
  bool scaled = false;     ///< gradients come times a loss scale
  bool clipped = false;    ///< where their norm is larger than v[7]
  bool scheduled = false;  ///< the device has a table of numbers

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
  void CheckCall(CallChecker& call) const;

  /// How many inputs decide about the update.
  size_t conditions() const { return (scaled || clipped) + size_t{scaled} + size_t{scheduled}; }
  /// n, of so many inputs.
  size_t count(size_t inputs) const {
    return (inputs - conditions()) / static_cast<size_t>(2 + states);
  }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("kind", self.kind);
    visitor("dtype", self.dtype);
    visitor("states", self.states);
    visitor("nesterov", self.nesterov);
    visitor("first", self.first);
    visitor("decoupled", self.decoupled);
    visitor("scaled", self.scaled);
    visitor("clipped", self.clipped);
    visitor("scheduled", self.scheduled);
  }
};

/// What follows an update with a loss scale. Inputs: `squares`, `loss_scale`. Output: the latter,
/// written in place. Scalars: v[0] growth factor, v[1] backoff factor, v[2] growth interval.
struct LossScaleSpec {
  const char* op() const { return "UpdateLossScale"; }
  void CheckCall(CallChecker& call) const;

  template <class Self, class Visitor>
  static void VisitFields(Self&, Visitor&) {}
};

/// Sum of squares of all elements of tensors of one type. Output: one float64. In recorded steps
/// some are of 16 bits that were converted to that type (passes/gradient_cast.cc): the squares and
/// their order are the same.
struct SumSquareSpec {
  DType dtype = kFloat32;

  const char* op() const { return "GlobalNorm"; }
  void CheckCall(CallChecker& call) const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("dtype", self.dtype);
  }
};

}  // namespace singa
