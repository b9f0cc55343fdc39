#pragma once

#include <vector>

#include "model/operation/alignment.h"
#include "model/operation/choice.h"
#include "model/operation/measure.h"
#include "model/operation/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/tensor.h"
#include "singa/core/threads.h"
#include "singa/operation/recorder.h"

namespace singa {

enum class ConvPass : int { kForward = 0, kBackwardX = 1, kBackwardW = 2, kBackwardB = 3 };
template <>
inline constexpr int kEnumSize<ConvPass> = 4;

/// One pass of a convolution. Arguments, in order:
///   kForward    x, W [, b] [, add]  → y
///   kBackwardX  dy, W               → dx
///   kBackwardW  dy, x               → dW [, db]
///   kBackwardB  dy                  → db
/// `geometry.bias` says whether b or db is there.
struct ConvSpec {
  ConvPass pass = ConvPass::kForward;
  DType dtype = kFloat32;
  Recorder geometry;
  bool has_add = false;  ///< forward: y = conv(x) + b + add ...
  bool relu = false;     ///< ... and what is negative cut off
  /// Forward: W stays the same from call to call, so a layout that costs to make is worth it.
  bool constant_weights = false;
  /// How x and dy lie as they come, for implementations that follow them (dx follows x). Null:
  /// plain, or not known.
  LayoutPtr x_layout;
  LayoutPtr dy_layout;
  bool plain = GetLayoutMode() == LayoutMode::kPlain;  ///< images stay row-major
  int threads = NumThreads();                          ///< that the workspace has room for
  int alignment = kVectorBytes;                        ///< of the arguments: see alignment.h
  /// What the call was chosen by, for whoever rewrites it; the signature has that besides the Spec.
  Choice choice;

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
  void CheckCall(CallChecker& call) const;

  /// Position of `add` among the inputs.
  size_t add_input() const { return geometry.bias ? 3 : 2; }

  /// For the profile.
  int64_t multiply_adds() const {
    const Recorder& g = geometry;
    return pass == ConvPass::kBackwardB ? 0
                                        : g.batchsize * g.out_channels * g.col_height * g.col_width;
  }

  // For OPCHECK: results are sums of this many products at most. ReLU makes no error larger.
  static constexpr bool kLinear = true;
  int64_t sum_length() const {
    switch (pass) {
      case ConvPass::kForward:
        return geometry.col_height + 1 + has_add;
      case ConvPass::kBackwardX:
        return geometry.out_channels / geometry.group * geometry.kernel_h * geometry.kernel_w;
      default:
        return geometry.batchsize * geometry.conv_height * geometry.conv_width;
    }
  }

  // For autotune. A parameter rests in the layout of its gradient (optimizer.cc), so passes that
  // read the weights take them as they like them, and the one that computes their gradient bears
  // the reorders into what those wanted.
  MeasuredCall Measured() const {
    return MeasuredAs(geometry.input_shape(), geometry.output_shape(), geometry.out_channels);
  }
  void OnChosen(const Plan& plan) const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("pass", self.pass);
    visitor("dtype", self.dtype);
    visitor("geometry", self.geometry);
    visitor("has_add", self.has_add);
    visitor("relu", self.relu);
    visitor("constant_weights", self.constant_weights);
    visitor("x_layout", self.x_layout);
    visitor("dy_layout", self.dy_layout);
    visitor("plain", self.plain);
    visitor("threads", self.threads);
    visitor("alignment", self.alignment);
  }

 protected:
  /// Of a convolution from x to y.
  MeasuredCall MeasuredAs(const Shape& x, const Shape& y, int64_t bias) const;
};

/// y of a forward `spec`, whose geometry, has_add and relu say what the other arguments are: what
/// ConvForward does once they are checked.
Tensor RunConvForward(ConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b,
                      const Tensor& add);

/// What CheckCall of every kind of convolution says, where x, y and the bias are of these shapes.
void CheckConvCall(const ConvSpec& spec, const Shape& x, const Shape& y, int64_t bias,
                   CallChecker& call);

/// A forward convolution without addition or ReLU that also gives what the statistics of a batch
/// norm behind it follow from (passes/conv_statistics.cc). Arguments: x, W [, b] → y, and for each
/// channel the sum of y's values and that of their squares, of BatchNormStatisticsType.
struct ConvStatisticsSpec : ConvSpec {
  const char* op() const { return "ConvForwardStatistics"; }
  void CheckCall(CallChecker& call) const;
  MeasuredCall Measured() const;
  // For OPCHECK: sums are less certain than their type says (magnitudes.cc).
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
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const {
    switch (pass) {
      case ConvPass::kForward:
        return geometry.out_channels / geometry.group * geometry.kernel_h * geometry.kernel_w + 1;
      case ConvPass::kBackwardX:
        return geometry.col_height;
      default:  // b is as long as a channel of y, W as one of x
        return geometry.batchsize * geometry.height * geometry.width;
    }
  }
  MeasuredCall Measured() const {
    return MeasuredAs(geometry.output_shape(), geometry.input_shape(), geometry.in_channels);
  }
};

}  // namespace singa
