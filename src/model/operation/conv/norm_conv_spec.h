#pragma once

#include "model/operation/activation.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/conv/spec.h"
#include "singa/operation/activation.h"

namespace singa {

/// A convolution of f(bn(x)), a batch norm's result that is not in memory: it is computed where the
/// convolution reads it (passes/norm_conv.cc). x is in the place of f(bn(x)), f is `front`. Without
/// has_norm, a convolution of f(x), in inference (passes/inference.cc).
struct NormConvSpec : ConvSpec {
  bool has_scale = true;
  bool has_bias = true;
  double epsilon = 1e-5;
  Activation front = {};
  bool has_norm = true;

  const char* op() const {
    return pass == ConvPass::kForward ? "NormConvForward" : "NormConvBackwardW";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    ConvSpec::VisitArguments(visit);
    if (!has_norm) return;
    const DType statistics = StatisticsType(dtype);
    const Shape channels{geometry.in_channels};
    visit.Input("mean", channels, statistics);
    visit.Input("var", channels, statistics);
    visit.Input("scale", channels, statistics, {.given = has_scale});
    visit.Input("bias", channels, statistics, {.given = has_bias});
  }
  void CheckFields(const CallChecker& call) const;
  // For OPCHECK: bn(x) is a small difference of large terms (norm/tolerance.cc).
  static constexpr bool kLinear = false;
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;

  /// Position of x among the inputs, and that of batch norm's mean.
  size_t x_input() const { return pass == ConvPass::kForward ? 0 : 1; }
  size_t mean_input() const { return pass == ConvPass::kForward && geometry.bias ? 3 : 2; }
  /// The batch norm in front of the convolution, by given statistics.
  BatchNormForwardSpec Norm() const {
    return {{.shape = geometry.input_shape(),
             .dtype = dtype,
             .training = false,
             .has_scale = has_scale,
             .epsilon = epsilon,
             .x_layout = x_layout},
            has_bias,
            false,
            front};
  }
  /// f without a batch norm, of this convolution.
  static NormConvSpec Behind(const Activation& f, const ConvSpec& conv) {
    return {conv, false, false, 0, f, false};
  }
  /// Norm's inputs among those of this Spec.
  template <class Inputs>
  std::vector<Tensor> NormInputs(const Inputs& inputs) const {
    const size_t at = mean_input();
    return {inputs[x_input()], inputs[at + 2], inputs[at + 3], inputs[at], inputs[at + 1], {}};
  }

  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    ConvSpec::VisitFields(self, v);
    v("has_scale", self.has_scale);
    v("has_bias", self.has_bias);
    v("epsilon", self.epsilon);
    v("front", self.front.kind);  // not by the names of `activation`
    v("front_low", self.front.low);
    v("front_high", self.front.high);
    v("has_norm", self.has_norm);
  }
};

/// y of a forward `spec` without has_norm.
Tensor RunConvForward(NormConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b);

}  // namespace singa
