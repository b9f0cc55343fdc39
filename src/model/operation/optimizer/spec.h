#pragma once

#include <cstddef>
#include <iterator>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"

namespace singa {

enum class OptimizerKind : int { kSgd, kRmsProp, kAdaGrad, kAdam, kCount };

/// What is known of a rule besides its formula (model/formula/optimizer.h).
struct OptimizerFacts {
  OptimizerKind kind;
  const char* name;               ///< of its function
  int least_states, most_states;  ///< of a parameter
};
inline constexpr OptimizerFacts kOptimizerFacts[] = {
    {OptimizerKind::kSgd, "SgdUpdate", 0, 1},
    {OptimizerKind::kRmsProp, "RmsPropUpdate", 1, 1},
    {OptimizerKind::kAdaGrad, "AdaGradUpdate", 1, 1},
    {OptimizerKind::kAdam, "AdamUpdate", 2, 2},
};
constexpr const OptimizerFacts& FactsOf(OptimizerKind kind) {
  return kOptimizerFacts[static_cast<size_t>(kind)];
}
static_assert([] {
  for (int i = 0; i < static_cast<int>(std::size(kOptimizerFacts)); ++i)
    if (kOptimizerFacts[i].kind != OptimizerKind{i}) return false;
  return static_cast<int>(std::size(kOptimizerFacts)) == kEnumSize<OptimizerKind>;
}());

/// One update of n parameters. Inputs: n parameters, n gradients, n of each state. Then follow the
/// tensors of UpdateConditions (singa/operation/optimizer.h) that are there: `squares` (gradients
/// are multiplied by a loss scale, or clipped), `loss_scale`, `scalars`.
/// Outputs: the parameters and the states, written in place. They stay unchanged where gradients
/// with a loss scale are not finite. States have the parameters' compute type (float32 for 16-bit
/// floats). Each gradient may have another float type. Parameter, gradient and states of one index
/// are all contiguous, or all in one opaque layout, except for its type.
///
/// Scalars: v[0] learning rate, v[1] weight decay, then
///   SGD: v[2] momentum, v[3] dampening   RMSProp: v[2] rho, v[3] epsilon   AdaGrad: v[3] epsilon
///   Adam: v[2] beta1, v[3] beta2, v[4] epsilon, v[5] 1 − beta1^step, v[6] sqrt(1 − beta2^step)
/// and v[7] the norm at which gradients are clipped, or 0. With a table of scalars, v[0] multiplies
/// the table's learning rate, and v[2] to v[6] come from the table.
struct OptimizerSpec {
  static constexpr int kScalars = 8, kRate = 0, kWeightDecay = 1, kOwnNumbers = 2, kClipNorm = 7;

  OptimizerKind kind = OptimizerKind::kSgd;
  DType dtype = kFloat32;  ///< of the parameters
  int states = 0;
  bool nesterov = false;
  bool first = false;      ///< SGD: the momentum buffer starts as the gradient
  bool decoupled = false;  ///< Adam: weight decay apart from the gradient
  bool scaled = false;     ///< gradients are multiplied by a loss scale
  bool clipped = false;    ///< gradients are clipped where their norm is larger than v[7]
  bool scheduled = false;  ///< the device has a table of scalars

  const char* op() const { return FactsOf(kind).name; }
  void CheckCall(CallChecker& call) const;

  /// The number of inputs that belong to UpdateConditions.
  size_t conditions() const { return (scaled || clipped) + size_t{scaled} + size_t{scheduled}; }
  /// n, for this number of inputs.
  size_t count(size_t inputs) const {
    return (inputs - conditions()) / static_cast<size_t>(2 + states);
  }

  SINGA_FIELDS(kind, dtype, states, nesterov, first, decoupled, scaled, clipped, scheduled);
};

/// The step after an update with a loss scale. Inputs: `squares`, `loss_scale`. Output:
/// `loss_scale`, written in place. Scalars: v[0] growth factor, v[1] backoff factor, v[2] growth
/// interval.
struct LossScaleSpec {
  const char* op() const { return "UpdateLossScale"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("squares", {visit.ShapeOfInput(0).Count()}, kFloat64);
    visit.Input("loss_scale", {4}, kFloat64, {.updated = true});
    visit.Output("loss_scale", {4}, kFloat64, {.same_as = 1});
  }
  void CheckFields(const CallChecker&) const {}

  template <class Self, class Visitor>
  static void VisitFields(Self&, Visitor&) {}
};

/// Sum of squares of all elements of tensors of one type. Output: one float64. In recorded steps
/// some tensors may have a 16-bit type instead, from which they were converted before
/// (passes/gradient_cast.cc); the squares and their order are the same.
struct SumSquareSpec {
  DType dtype = kFloat32;

  const char* op() const { return "GlobalNorm"; }
  void CheckCall(CallChecker& call) const;

  SINGA_FIELDS(dtype);
};

}  // namespace singa
