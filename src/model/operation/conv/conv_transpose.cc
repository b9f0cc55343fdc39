#include <algorithm>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/conv/spec.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/indexing.h"
#include "singa/operation/reduce.h"

namespace singa {
namespace {

void CheckInput(const char* op, const Shape& x, int64_t channels, int spatial) {
  Check(x.rank() == spatial + 2, op, "input must be ", ImageAxes(spatial), "; got shape ", x);
  CheckShape(op, x, 8);
  for (int axis = 1; axis < x.rank(); ++axis)
    Check(x[axis] >= 1 && x[axis] <= INT32_MAX, op,
          "input must have at least one channel and one pixel; got shape ", x);
  Check(x[1] == channels, op, "input has ", x[1], " channels; expected ", channels,
        "; input shape ", x);
}

/// The shape of y, the image that the convolution `g` would turn into x.
Shape OutputOf(const char* op, const Recorder& g, const std::vector<int64_t>& extra,
               const Shape& x) {
  Shape y = {x[0], g.in_channels};
  for (int i = 0; i < g.spatial; ++i) {
    const auto number = static_cast<size_t>(Recorder::kMostAxes - g.spatial + i);
    const Recorder::Axis& axis = g.axes[number];
    // Sizes and parameters have 31 bits each, so that only the products can overflow 64.
    const int64_t pads = axis.before + axis.after;
    const int64_t length = (x[2 + i] - 1) * axis.stride - pads + axis.dilation * (axis.kernel - 1) +
                           extra[static_cast<size_t>(i)] + 1;
    Check(length >= 1, op, "padding ", pads, " leaves nothing of the output's ",
          Recorder::kAxisNames[number], "; input shape ", x);
    y.push_back(length);
  }
  return y;
}

/// The part of output_padding that a convolution over y does not notice: less than a stride.
std::vector<int64_t> WithinStride(const Recorder& g, const std::vector<int64_t>& output_padding) {
  std::vector<int64_t> within = g.Along(&Recorder::Axis::stride);
  for (size_t i = 0; i < within.size(); ++i) within[i] = std::min(output_padding[i], within[i] - 1);
  return within;
}

/// The number of elements at the end of each axis of y that x does not reach.
std::vector<int64_t> Unreached(const ConvTransposeHandle& handle) {
  std::vector<int64_t> rest = WithinStride(handle.recorder, handle.output_padding);
  for (size_t i = 0; i < rest.size(); ++i) rest[i] = handle.output_padding[i] - rest[i];
  return rest;
}

bool IsZero(const std::vector<int64_t>& numbers) {
  return std::ranges::all_of(numbers, [](int64_t n) { return n == 0; });
}

/// Takes from `output_padding` what becomes less padding after the image instead.
Recorder MakeRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      std::vector<int64_t>* output_padding, int64_t in_channels,
                      int64_t out_channels, bool bias, int64_t group,
                      const std::vector<int64_t>& given_dilation) {
  constexpr const char* kOp = "ConvTransposeHandle";
  CheckGiven(kOp, "input", input);
  const int spatial = SpatialAxes(kOp, input.shape());
  const auto axes = static_cast<size_t>(spatial);
  CheckInput(kOp, input.shape(), in_channels, spatial);
  Check(out_channels >= 1 && out_channels <= INT32_MAX, kOp, "out_channels must be between 1 and ",
        INT32_MAX, "; got ", out_channels);
  Check(group >= 1 && in_channels % group == 0 && out_channels % group == 0, kOp, "group ", group,
        " must be at least 1 and divide in_channels ", in_channels, " and out_channels ",
        out_channels);
  std::vector<int64_t> dilation = given_dilation;
  if (dilation.empty()) dilation.assign(axes, 1);
  // A convolution over an image of one window, which checks the arguments. The sizes follow below.
  Check(kernel.size() == axes && dilation.size() == axes, kOp, "kernel and dilation must be ",
        AxisNames(spatial));
  constexpr int64_t kMost = INT32_MAX;
  Shape window = {1, out_channels};
  for (size_t i = 0; i < axes; ++i) {
    Check(kernel[i] >= 1 && kernel[i] <= kMost && dilation[i] >= 1 && dilation[i] <= kMost &&
              dilation[i] * (kernel[i] - 1) < kMost,
          kOp, "kernel ", kernel[i], " with dilation ", dilation[i], " is out of range");
    window.push_back(dilation[i] * (kernel[i] - 1) + 1);
  }
  Recorder g =
      ConvRecorder(kOp, window, kernel, stride, padding, in_channels, bias, dilation, group);
  Check(output_padding->size() == axes, kOp, "output_padding must be ", AxisNames(spatial));
  for (size_t i = 0; i < axes; ++i)
    Check((*output_padding)[i] >= 0 && (*output_padding)[i] < std::max(stride[i], dilation[i]), kOp,
          "output_padding ", List{*output_padding},
          " must be at least 0 and smaller than the stride ", List{stride}, " or the dilation ",
          List{dilation});
  const std::vector<int64_t> within = WithinStride(g, *output_padding);
  for (size_t i = 0; i < axes; ++i) {
    int64_t& after = g.axes[Recorder::kMostAxes - axes + i].after;
    const int64_t less = std::min(after, (*output_padding)[i] - within[i]);
    after -= less;
    (*output_padding)[i] -= less;
  }
  return WithInput(kOp, g, OutputOf(kOp, g, WithinStride(g, *output_padding), input.shape()));
}

/// The convolution whose output has x's shape.
Recorder GeometryOf(const char* op, const ConvTransposeHandle& handle, const Shape& x, bool bias) {
  const Recorder& made = handle.recorder;
  CheckInput(op, x, made.out_channels, made.spatial);
  Check(handle.output_padding.size() == static_cast<size_t>(made.spatial), op,
        "the handle's output_padding must be ", AxisNames(made.spatial));
  const std::vector<int64_t> within = WithinStride(made, handle.output_padding);
  Recorder geometry = GeometryFor(op, made, OutputOf(op, made, within, x));
  Check(geometry.output_shape() == x, op, "the handle's output_padding does not fit its stride");
  geometry.bias = bias;
  return geometry;
}

ConvTransposeSpec SpecOf(ConvPass pass, const Recorder& geometry, const Tensor& like) {
  auto spec = CurrentSpec<ConvTransposeSpec>();
  spec.pass = pass;
  spec.dtype = like.data_type();
  spec.geometry = geometry;
  return spec;
}

}  // namespace

ConvTransposeHandle::ConvTransposeHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                                         const std::vector<int64_t>& stride,
                                         const std::vector<int64_t>& padding,
                                         const std::vector<int64_t>& output_padding,
                                         int64_t in_channels, int64_t out_channels, bool bias,
                                         int64_t group, const std::vector<int64_t>& dilation)
    : output_padding(output_padding) {
  recorder = MakeRecorder(input, kernel, stride, padding, &this->output_padding, in_channels,
                          out_channels, bias, group, dilation);
}

Tensor ConvTransposeForward(const Tensor& x, const Tensor& W, const Tensor& b,
                            const ConvTransposeHandle& handle) {
  constexpr const char* kOp = "ConvTransposeForward";
  CheckFloat(kOp, "x", x);
  Recorder geometry = GeometryOf(kOp, handle, x.shape(), !b.empty());
  const std::vector<int64_t> unreached = Unreached(handle);
  const bool whole = IsZero(unreached);
  geometry.bias &= whole;
  ConvTransposeSpec spec = SpecOf(ConvPass::kForward, geometry, x);
  spec.x_layout = x.layout();
  const CallOptions options{.zeros = x.size() == 0};
  if (whole) return Call(spec, {x, W, b, Tensor()}, options);
  const Tensor y = Call(spec, {x, W, Tensor(), Tensor()}, options);
  std::vector<int64_t> pads(static_cast<size_t>(y.rank()) + 2, 0);
  pads.insert(pads.end(), unreached.begin(), unreached.end());
  const Tensor padded = Pad(y, "constant", pads);
  if (b.empty()) return padded;
  CheckShapeIs(kOp, "b", b, {geometry.in_channels});
  CheckDType(kOp, "b", b, x.data_type());
  CheckSameDevice(kOp, "b", b, "x", x);
  Shape channels = {1, geometry.in_channels};
  for (int i = 0; i < geometry.spatial; ++i) channels.push_back(1);
  return Binary(BinaryOp::kAdd, padded, b.Reshape(channels));
}

std::vector<Tensor> ConvTransposeBackward(const Tensor& given_dy, const Tensor& x, const Tensor& W,
                                          const ConvTransposeHandle& handle, bool need_x,
                                          bool need_w, bool need_b) {
  constexpr const char* kOp = "ConvTransposeBackward";
  CheckFloat(kOp, "x", x);
  Recorder geometry = GeometryOf(kOp, handle, x.shape(), need_b);
  const std::vector<int64_t> unreached = Unreached(handle);
  const bool all_b = need_b && !IsZero(unreached);
  if (all_b) geometry.bias = need_b = false;
  Shape whole = geometry.input_shape();
  for (size_t i = 0; i < unreached.size(); ++i) whole[static_cast<int>(i) + 2] += unreached[i];
  CheckShapeIs(kOp, "dy", given_dy, whole);
  CheckDType(kOp, "dy", given_dy, x.data_type());
  CheckSameDevice(kOp, "dy", given_dy, "x", x);
  Tensor dy = given_dy;
  for (size_t i = 0; i < unreached.size(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    if (unreached[i] > 0) dy = dy.SliceAxis(axis, 0, geometry.input_shape()[axis]);
  }
  const CallOptions options{.op = kOp, .zeros = x.size() == 0};
  std::vector<Tensor> gradients(3);
  if (need_x) {
    ConvTransposeSpec spec = SpecOf(ConvPass::kBackwardX, geometry, x);
    spec.geometry.bias = false;
    spec.x_layout = x.layout();
    spec.dy_layout = dy.layout();
    gradients[0] = Call(spec, {dy, W}, options);
  }
  if (need_w) {
    ConvTransposeSpec spec = SpecOf(ConvPass::kBackwardW, geometry, x);
    spec.x_layout = x.layout();
    spec.dy_layout = dy.layout();
    const std::vector<Tensor> parameters = CallForAll(spec, {dy, x}, options);
    gradients[1] = parameters[0];
    if (need_b) gradients[2] = parameters[1];
  } else if (need_b) {
    ConvTransposeSpec spec = SpecOf(ConvPass::kBackwardB, geometry, x);
    spec.dy_layout = dy.layout();
    gradients[2] = Call(spec, {dy}, options);
  }
  if (all_b) {
    std::vector<int64_t> axes = {0};
    for (int axis = 2; axis < given_dy.rank(); ++axis) axes.push_back(axis);
    gradients[2] = Reduce(ReduceOp::kSum, given_dy, axes);
  }
  return gradients;
}

void ConvTransposeSpec::CheckFields(const CallChecker& call) const {
  call.Require(!has_add && !activation,
               "a transposed convolution adds nothing and has no activation");
  CheckAs(call, geometry.output_shape(), geometry.input_shape());
}

}  // namespace singa
