#pragma once

#include <vector>

#include "model/operation/activation.h"
#include "model/operation/conv/spec.h"
#include "singa/operation/activation.h"

namespace singa {

/// A forward convolution of f(z), in inference, where z is a convolution of x with 1 x 1 filters.
/// f(z) is not in memory: it often has several times as many channels as x (Sandler et al. 2018,
/// "MobileNetV2: Inverted Residuals and Linear Bottlenecks"). `geometry` is that of the convolution
/// of f(z).
struct ExpandConvSpec : ConvSpec {
  int64_t channels = 1;    ///< of x
  bool has_shift = false;  ///< z has a bias
  Activation front = {};   ///< f

  const char* op() const { return "ExpandConvForward"; }
  Shape x_shape() const {
    Shape shape = geometry.input_shape();
    shape[1] = channels;
    return shape;
  }
  /// Of z: (channels of z, channels of x, 1 ...).
  Shape expand_shape() const {
    Shape shape = geometry.weight_shape();
    shape[0] = geometry.in_channels;
    shape[1] = channels;
    for (int axis = 2; axis < shape.rank(); ++axis) shape[axis] = 1;
    return shape;
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitAs(visit, x_shape(), geometry.output_shape(), geometry.out_channels);
    visit.Input("expand W", expand_shape(), dtype, {.typed_as = "x", .weight = true});
    visit.Input("expand b", has_shift ? Shape{geometry.in_channels} : Shape(), dtype,
                {.left_out = !has_shift, .typed_as = "x"});
  }
  void CheckFields(const CallChecker& call) const;

  /// The convolution that makes f(z).
  ConvSpec Inner() const;
  /// Position of its filters among the inputs. Its bias follows.
  size_t expand_input() const { return geometry.bias ? 3 : 2; }

  int64_t multiply_adds() const {
    return ConvSpec::multiply_adds() +
           geometry.batchsize * geometry.in_channels * channels * geometry.pixels();
  }
  // For OPCHECK: the error of z is one of its sum, and the slope of f at most 3/2.
  static constexpr bool kLinear = false;
  int64_t sum_length() const { return 2 * (ConvSpec::sum_length() + 9 * (channels + 1) / 4 + 1); }
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;

  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    ConvSpec::VisitFields(self, v);
    v("channels", self.channels);
    v("has_shift", self.has_shift);
    v("front", self.front.kind);  // not by the names of `activation`
    v("front_low", self.front.low);
    v("front_high", self.front.high);
  }
};

/// y of `spec`. V and c are the filters and the bias of z.
Tensor RunConvForward(ExpandConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b,
                      const Tensor& V, const Tensor& c);

}  // namespace singa
