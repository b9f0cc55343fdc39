#include "model/operation/check.h"
#include "model/operation/conv_spec.h"
#include "model/operation/dispatch.h"
#include "singa/operation/conv.h"

namespace singa {
namespace {

struct OutputSize {
  int64_t height, width;
};

/// Height and width of y, the image that the convolution `g` would turn into x.
OutputSize OutputOf(const char* op, const Recorder& g, const std::vector<int64_t>& extra,
                    const Shape& x) {
  auto along = [&](const char* axis, int64_t size, int64_t stride, int64_t pads, int64_t dilation,
                   int64_t kernel, int64_t more) {
    // Sizes and parameters have 31 bits each, so that only the products can overflow 64.
    const int64_t length = (size - 1) * stride - pads + dilation * (kernel - 1) + more + 1;
    Check(length >= 1, op, "padding ", pads, " leaves nothing of the output's ", axis,
          "; input shape ", x);
    return length;
  };
  return {along("height", x[2], g.stride_h, g.pad_top + g.pad_bottom, g.dilation_h, g.kernel_h,
                extra[0]),
          along("width", x[3], g.stride_w, g.pad_left + g.pad_right, g.dilation_w, g.kernel_w,
                extra[1])};
}

void CheckInput(const char* op, const Shape& x, int64_t channels) {
  Check(x.rank() == 4, op, "input must be (N, C, H, W); got shape ", x);
  CheckShape(op, x, 8);
  for (int axis = 1; axis < 4; ++axis)
    Check(x[axis] >= 1 && x[axis] <= INT32_MAX, op,
          "input must have at least one channel, row and column; got shape ", x);
  Check(x[1] == channels, op, "input has ", x[1], " channels; expected ", channels,
        "; input shape ", x);
}

Recorder MakeRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      const std::vector<int64_t>& output_padding, int64_t in_channels,
                      int64_t out_channels, bool bias, int64_t group,
                      const std::vector<int64_t>& dilation) {
  constexpr const char* kOp = "ConvTransposeHandle";
  CheckGiven(kOp, "input", input);
  CheckInput(kOp, input.shape(), in_channels);
  Check(out_channels >= 1 && out_channels <= INT32_MAX, kOp, "out_channels must be between 1 and ",
        INT32_MAX, "; got ", out_channels);
  Check(group >= 1 && in_channels % group == 0 && out_channels % group == 0, kOp, "group ", group,
        " must be at least 1 and divide in_channels ", in_channels, " and out_channels ",
        out_channels);
  // A convolution over an image of one window, to have the arguments checked; its sizes follow.
  Check(kernel.size() == 2 && dilation.size() == 2, kOp, "kernel and dilation must be (h, w)");
  constexpr int64_t kMost = INT32_MAX;
  for (int i = 0; i < 2; ++i)
    Check(kernel[i] >= 1 && kernel[i] <= kMost && dilation[i] >= 1 && dilation[i] <= kMost &&
              dilation[i] * (kernel[i] - 1) < kMost,
          kOp, "kernel ", kernel[i], " with dilation ", dilation[i], " is out of range");
  const Shape window = {1, out_channels, dilation[0] * (kernel[0] - 1) + 1,
                        dilation[1] * (kernel[1] - 1) + 1};
  Recorder g =
      ConvRecorder(kOp, window, kernel, stride, padding, in_channels, bias, dilation, group);
  Check(output_padding.size() == 2, kOp, "output_padding must be (h, w)");
  Check(output_padding[0] >= 0 && output_padding[0] < g.stride_h && output_padding[1] >= 0 &&
            output_padding[1] < g.stride_w,
        kOp, "output_padding (", output_padding[0], ", ", output_padding[1],
        ") must be at least 0 and smaller than the stride (", g.stride_h, ", ", g.stride_w, ")");
  const Shape& x = input.shape();
  const OutputSize y = OutputOf(kOp, g, output_padding, x);
  return WithInput(kOp, g, {x[0], out_channels, y.height, y.width});
}

/// The convolution whose output has x's shape.
Recorder GeometryOf(const char* op, const ConvTransposeHandle& handle, const Shape& x, bool bias) {
  const Recorder made = WithInput(op, handle.recorder, handle.recorder.input_shape());
  CheckInput(op, x, made.out_channels);
  Check(handle.output_padding.size() == 2, op, "the handle's output_padding must be (h, w)");
  const OutputSize y = OutputOf(op, made, handle.output_padding, x);
  Recorder geometry = WithInput(op, made, {x[0], made.in_channels, y.height, y.width});
  Check(geometry.conv_height == x[2] && geometry.conv_width == x[3], op,
        "the handle's output_padding does not fit its stride");
  geometry.bias = bias;
  return geometry;
}

void CheckMatches(const char* op, const char* name, const Tensor& t, const char* other_name,
                  const Tensor& other, const Shape& shape) {
  CheckShapeIs(op, name, t, shape);
  Check<TypeError>(t.data_type() == other.data_type(), op, name, " has to have the type of ",
                   other_name, ", ", DTypeName(other.data_type()), ", got ", t);
  CheckSameDevice(op, name, t, other_name, other);
}

ConvTransposeSpec SpecOf(ConvPass pass, const Recorder& geometry, const Tensor& like) {
  ConvTransposeSpec spec;
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
  CheckMatches(kOp, "W", W, "x", x, geometry.weight_shape());
  if (geometry.bias) CheckMatches(kOp, "b", b, "x", x, {geometry.in_channels});
  const DevicePtr device = x.device();
  const Shape y_shape = geometry.input_shape();
  if (x.size() == 0) return Tensor(y_shape, device, x.data_type());
  ConvTransposeSpec spec = SpecOf(ConvPass::kForward, geometry, x);
  spec.x_layout = x.layout();
  const PlanPtr plan = FindPlan(*device, spec);
  Tensor y = NewOutput(*plan, 0, y_shape, device, spec.dtype);
  const Tensor inputs[] = {Wanted(*plan, 0, x), Wanted(*plan, 1, W), Wanted(*plan, 2, b)};
  const Tensor outputs[] = {y};
  Run(spec, device, plan, std::span<const Tensor>(inputs, geometry.bias ? 3 : 2), outputs);
  return y;
}

std::vector<Tensor> ConvTransposeBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                          const ConvTransposeHandle& handle, bool need_x,
                                          bool need_w, bool need_b) {
  constexpr const char* kOp = "ConvTransposeBackward";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), need_b);
  CheckMatches(kOp, "dy", dy, "x", x, geometry.input_shape());
  if (need_x) CheckMatches(kOp, "W", W, "x", x, geometry.weight_shape());
  const DevicePtr device = x.device();
  const Shape b_shape = {geometry.in_channels};
  std::vector<Tensor> gradients(3);
  if (x.size() == 0) {
    auto zeros = [&](const Shape& shape) { return Full(shape, 0, device, x.data_type()); };
    if (need_x) gradients[0] = zeros(x.shape());
    if (need_w) gradients[1] = zeros(geometry.weight_shape());
    if (need_b) gradients[2] = zeros(b_shape);
    return gradients;
  }
  if (need_x) {
    ConvTransposeSpec spec = SpecOf(ConvPass::kBackwardX, geometry, x);
    spec.geometry.bias = false;
    spec.x_layout = x.layout();
    spec.dy_layout = dy.layout();
    const PlanPtr plan = FindPlan(*device, spec);
    gradients[0] = NewOutput(*plan, 0, x.shape(), device, spec.dtype);
    Run(spec, device, plan, {Wanted(*plan, 0, dy), Wanted(*plan, 1, W)}, {gradients[0]});
  }
  if (need_w) {
    ConvTransposeSpec spec = SpecOf(ConvPass::kBackwardW, geometry, x);
    spec.x_layout = x.layout();
    spec.dy_layout = dy.layout();
    const PlanPtr plan = FindPlan(*device, spec);
    Tensor dw = NewOutput(*plan, 0, geometry.weight_shape(), device, spec.dtype);
    if (need_b) gradients[2] = NewOutput(*plan, 1, b_shape, device, spec.dtype);
    const Tensor inputs[] = {Wanted(*plan, 0, dy), Wanted(*plan, 1, x)};
    const Tensor outputs[] = {dw, gradients[2]};
    Run(spec, device, plan, inputs, std::span<const Tensor>(outputs, need_b ? 2 : 1));
    gradients[1] = dw;
  } else if (need_b) {
    ConvTransposeSpec spec = SpecOf(ConvPass::kBackwardB, geometry, x);
    spec.dy_layout = dy.layout();
    const PlanPtr plan = FindPlan(*device, spec);
    gradients[2] = NewOutput(*plan, 0, b_shape, device, spec.dtype);
    Run(spec, device, plan, {Wanted(*plan, 0, dy)}, {gradients[2]});
  }
  return gradients;
}

void ConvTransposeSpec::CheckCall(CallChecker& call) const {
  call.Require(!has_add && !relu, "a transposed convolution adds nothing and cuts nothing off");
  CheckConvCall(*this, geometry.output_shape(), geometry.input_shape(), geometry.in_channels, call);
}

}  // namespace singa
