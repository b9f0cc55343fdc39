#pragma once

#include <vector>

#include "core/tensor/alignment.h"
#include "model/dispatch/arguments.h"
#include "model/dispatch/measure.h"
#include "model/dispatch/plan_options.h"
#include "model/dispatch/spec.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/statistics_type.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/tensor.h"
#include "singa/operation/activation.h"
#include "singa/operation/recorder.h"

namespace singa {

enum class ConvPass : int { kForward = 0, kBackwardX = 1, kBackwardW = 2, kBackwardB = 3 };
template <>
inline constexpr int kEnumSize<ConvPass> = 4;

/// One pass of a convolution. `geometry.bias` says whether b or db is there.
struct ConvSpec {
  ConvPass pass = ConvPass::kForward;
  DType dtype = kFloat32;
  Recorder geometry;
  bool has_add = false;        ///< forward: y = conv(x) + b + add ...
  Activation activation = {};  ///< ... and f of that, where f(0) = 0
  /// Forward: W stays the same from call to call, so a layout that is expensive to make pays.
  bool constant_weights = false;
  /// The layouts of x and dy, for implementations that follow them (dx follows x). Null: plain, or
  /// not known.
  LayoutPtr x_layout;
  LayoutPtr dy_layout;
  bool plain = false;            ///< images stay row-major
  int threads = 1;               ///< the workspace has room for this many
  int alignment = kVectorBytes;  ///< of the arguments: see alignment.h
  /// The options of the call, for passes that rewrite it. No field: the signature has the options
  /// besides the Spec.
  PlanOptions choice = {Preference::kFastest};

  const char* op() const {
    switch (pass) {
      case ConvPass::kForward:
        return "ConvForward";
      case ConvPass::kBackwardX:
        return "ConvBackwardX";
      case ConvPass::kBackwardW:
        return "ConvBackwardW";
      case ConvPass::kBackwardB:
        return "ConvBackwardB";
    }
    return "Conv";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitAs(visit, geometry.input_shape(), geometry.output_shape(), geometry.out_channels);
  }
  void CheckFields(const CallChecker& call) const {
    CheckAs(call, geometry.input_shape(), geometry.output_shape());
  }

  /// Position of `add` among the inputs.
  size_t add_input() const { return geometry.bias ? 3 : 2; }

  /// For the profile.
  int64_t multiply_adds() const {
    const Recorder& g = geometry;
    return pass == ConvPass::kBackwardB ? 0
                                        : g.batchsize * g.out_channels * g.col_height * g.col_width;
  }

  void Sample(spot::Sampler& sampler) const;

  // For OPCHECK: results are sums of at most this many products. The error grows with the root of
  // their number, and 3/2 times by the slope of a gate.
  static constexpr bool kLinear = true;
  int64_t sum_length() const {
    switch (pass) {
      case ConvPass::kForward: {
        const int64_t terms = geometry.col_height + 1 + has_add;
        return formula::FactsOf(activation.kind).is_gate ? (9 * terms + 3) / 4 : terms;
      }
      case ConvPass::kBackwardX:
        return geometry.out_channels / geometry.group * geometry.taps();
      default:
        return geometry.batchsize * geometry.conv_pixels();
    }
  }

  void MakeMagnitude() { activation = {}; }

  // For autotune. A parameter rests in the layout of its gradient (optimizer.cc). So passes that
  // read the weights are measured with the layout that they want, and the pass that computes the
  // gradient is measured with the reorders into those layouts.
  static constexpr bool kMeasured = true;
  void AdjustMeasured(MeasuredCall* call) const;
  void OnChosen(const Plan& plan) const;

  SINGA_FIELDS(pass, dtype, geometry, has_add, activation, constant_weights, x_layout, dy_layout,
               plain, threads, alignment);

 protected:
  // Of a convolution from x to y.
  void VisitAs(ArgumentVisitor& visit, const Shape& x, const Shape& y, int64_t bias) const;
  void CheckAs(const CallChecker& call, const Shape& x, const Shape& y) const;
};

/// y of a forward `spec`, whose geometry and has_add tell which arguments there are.
Tensor RunConvForward(ConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b,
                      const Tensor& add);

/// A forward convolution, without addition or ReLU, that also computes the sums for the batch norm
/// behind it (passes/conv_statistics.cc): those of y's values and of their squares in each channel.
struct ConvStatisticsSpec : ConvSpec {
  const char* op() const { return "ConvForwardStatistics"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    ConvSpec::VisitArguments(visit);
    visit.Output("sum", {geometry.out_channels}, StatisticsType(dtype));
    visit.Output("sum of squares", {geometry.out_channels}, StatisticsType(dtype));
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const { ConvSpec::Sample(sampler); }
  // For OPCHECK: the sums are less accurate than their type (norm/tolerance.cc).
  static constexpr bool kLinear = false;
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
};

/// One pass of a transposed convolution, with the same arguments. `geometry` is that of the
/// convolution whose input gradient it is: y and dy have its input's shape, x and dx its output's.
struct ConvTransposeSpec : ConvSpec {
  const char* op() const {
    switch (pass) {
      case ConvPass::kForward:
        return "ConvTransposeForward";
      case ConvPass::kBackwardX:
        return "ConvTransposeBackwardX";
      case ConvPass::kBackwardW:
        return "ConvTransposeBackwardW";
      case ConvPass::kBackwardB:
        return "ConvTransposeBackwardB";
    }
    return "ConvTranspose";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitAs(visit, geometry.output_shape(), geometry.input_shape(), geometry.in_channels);
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;
  int64_t sum_length() const {
    switch (pass) {
      case ConvPass::kForward:
        return geometry.out_channels / geometry.group * geometry.taps() + 1;
      case ConvPass::kBackwardX:
        return geometry.col_height;
      default:  // b is as long as a channel of y, W as one of x
        return geometry.batchsize * geometry.pixels();
    }
  }
};

}  // namespace singa
