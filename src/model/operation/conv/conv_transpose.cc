#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/conv/spec.h"
#include "singa/operation/conv.h"

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

Recorder MakeRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      const std::vector<int64_t>& output_padding, int64_t in_channels,
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
  const Recorder g =
      ConvRecorder(kOp, window, kernel, stride, padding, in_channels, bias, dilation, group);
  Check(output_padding.size() == axes, kOp, "output_padding must be ", AxisNames(spatial));
  for (size_t i = 0; i < axes; ++i)
    Check(output_padding[i] >= 0 && output_padding[i] < stride[i], kOp, "output_padding ",
          List{output_padding}, " must be at least 0 and smaller than the stride ", List{stride});
  return WithInput(kOp, g, OutputOf(kOp, g, output_padding, input.shape()));
}

/// The convolution whose output has x's shape.
Recorder GeometryOf(const char* op, const ConvTransposeHandle& handle, const Shape& x, bool bias) {
  const Recorder& made = handle.recorder;
  CheckInput(op, x, made.out_channels, made.spatial);
  Check(handle.output_padding.size() == static_cast<size_t>(made.spatial), op,
        "the handle's output_padding must be ", AxisNames(made.spatial));
  Recorder geometry = GeometryFor(op, made, OutputOf(op, made, handle.output_padding, x));
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
    : recorder(MakeRecorder(input, kernel, stride, padding, output_padding, in_channels,
                            out_channels, bias, group, dilation)),
      output_padding(output_padding) {}

Tensor ConvTransposeForward(const Tensor& x, const Tensor& W, const Tensor& b,
                            const ConvTransposeHandle& handle) {
  constexpr const char* kOp = "ConvTransposeForward";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), !b.empty());
  ConvTransposeSpec spec = SpecOf(ConvPass::kForward, geometry, x);
  spec.x_layout = x.layout();
  return Call(spec, {x, W, b, Tensor()}, {.zeros = x.size() == 0});
}

std::vector<Tensor> ConvTransposeBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                          const ConvTransposeHandle& handle, bool need_x,
                                          bool need_w, bool need_b) {
  constexpr const char* kOp = "ConvTransposeBackward";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), need_b);
  CheckShapeIs(kOp, "dy", dy, geometry.input_shape());
  CheckDType(kOp, "dy", dy, x.data_type());
  CheckSameDevice(kOp, "dy", dy, "x", x);
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
  return gradients;
}

void ConvTransposeSpec::CheckFields(const CallChecker& call) const {
  call.Require(!has_add && !relu, "a transposed convolution adds nothing and cuts nothing off");
  CheckAs(call, geometry.output_shape(), geometry.input_shape());
}

}  // namespace singa
