#include "singa/operation/conv.h"

#include <cstring>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/operation/activation.h"
#include "model/operation/batchnorm/statistics_type.h"
#include "model/operation/channels_last.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/conv/norm_conv_spec.h"

namespace singa {
namespace {

PlanOptions ChoiceOf(const ConvHandle& handle) {
  return {handle.follows_default ? GetPreference() : handle.preference,
          handle.workspace_byte_limit};
}

Recorder GeometryOf(const char* op, const ConvHandle& handle, const Shape& x_shape, bool bias) {
  Recorder geometry = GeometryFor(op, handle.recorder, x_shape);
  geometry.bias = bias;
  return geometry;
}

/// Geometry of a backward pass that does not get x's shape.
Recorder GeometryFromOutput(const char* op, const ConvHandle& handle, const Tensor& dy, bool bias) {
  CheckGiven(op, "dy", dy);
  Shape x_shape = handle.recorder.input_shape();
  if (dy.rank() == x_shape.rank()) x_shape[0] = dy.shape()[0];
  return GeometryOf(op, handle, x_shape, bias);
}

/// The Spec of a pass, by the settings in force. Made at once: the geometry is large.
ConvSpec SpecOf(ConvPass pass, const Recorder& geometry, DType dtype, const LayoutPtr& x_layout,
                const LayoutPtr& dy_layout, const ConvHandle& handle) {
  return {.pass = pass,
          .dtype = dtype,
          .geometry = geometry,
          .x_layout = x_layout,
          .dy_layout = dy_layout,
          .plain = GetLayoutMode() == LayoutMode::kPlain,
          .threads = NumThreads(),
          .choice = ChoiceOf(handle)};
}

Tensor RunBackwardX(const char* op, const Tensor& dy, const Tensor& W, const LayoutPtr& x_layout,
                    const Recorder& geometry, const ConvHandle& handle) {
  ConvSpec spec =
      SpecOf(ConvPass::kBackwardX, geometry, dy.data_type(), x_layout, dy.layout(), handle);
  spec.geometry.bias = false;
  spec.alignment = AlignmentOf({&dy, &W});
  return Call(spec, {dy, W}, {.op = op, .zeros = dy.size() == 0, .plan = spec.choice});
}

/// {dW} or {dW, db}, by geometry.bias.
std::vector<Tensor> RunBackwardW(const char* op, const Tensor& dy, const Tensor& x,
                                 const Recorder& geometry, const ConvHandle& handle) {
  ConvSpec spec =
      SpecOf(ConvPass::kBackwardW, geometry, dy.data_type(), x.layout(), dy.layout(), handle);
  spec.alignment = AlignmentOf({&dy, &x});
  return CallForAll(spec, {dy, x}, {.op = op, .zeros = dy.size() == 0, .plan = spec.choice});
}

Tensor RunBackwardB(const char* op, const Tensor& dy, const Recorder& geometry,
                    const ConvHandle& handle) {
  ConvSpec spec =
      SpecOf(ConvPass::kBackwardB, geometry, dy.data_type(), nullptr, dy.layout(), handle);
  spec.alignment = AlignmentOf({&dy});
  return Call(spec, {dy}, {.op = op, .zeros = dy.size() == 0, .plan = spec.choice});
}

}  // namespace

ConvHandle::ConvHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                       const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                       int64_t in_channels, int64_t out_channels, bool bias, int64_t group,
                       const std::vector<int64_t>& dilation, size_t workspace_byte_limit,
                       const std::string& prefer)
    : ConvHandle(SetupRecorder(input, kernel, stride, padding, in_channels, out_channels, bias,
                               dilation, group),
                 workspace_byte_limit, prefer) {}

ConvHandle::ConvHandle(const Recorder& recorder, size_t workspace_byte_limit,
                       const std::string& prefer)
    : recorder(WithInput("ConvHandle", recorder, recorder.input_shape())),
      workspace_byte_limit(workspace_byte_limit),
      preference(prefer.empty() ? GetPreference() : ParsePreference(prefer)),
      follows_default(prefer.empty()) {}

Tensor ConvForward(const Tensor& x, const Tensor& W, const Tensor& b, const ConvHandle& handle,
                   const Tensor& add, bool relu) {
  constexpr const char* kOp = "ConvForward";
  CheckFloat(kOp, "x", x);
  ConvSpec spec = SpecOf(ConvPass::kForward, GeometryOf(kOp, handle, x.shape(), !b.empty()),
                         x.data_type(), x.layout(), nullptr, handle);
  spec.has_add = !add.empty();
  spec.activation = relu;
  return RunConvForward(std::move(spec), x, W, b, add);
}

namespace {

template <class Spec>
Tensor RunForward(Spec& spec, const Tensor& x, const Tensor& W, const Tensor& b,
                  const Tensor& add) {
  spec.x_layout = x.layout();
  spec.alignment = AlignmentOf({&x, &W, &b, &add});
  return Call(spec, {x, W, b, add}, {.zeros = x.size() == 0, .plan = spec.choice});
}

}  // namespace

Tensor RunConvForward(ConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b,
                      const Tensor& add) {
  return RunForward(spec, x, W, b, add);
}

Tensor RunConvForward(NormConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b) {
  return RunForward(spec, x, W, b, Tensor());
}

Tensor ConvBackwardX(const Tensor& dy, const Tensor& W, const ConvHandle& handle,
                     const Shape& x_shape) {
  constexpr const char* kOp = "ConvBackwardX";
  CheckFloat(kOp, "dy", dy);
  const Recorder geometry = x_shape.empty() ? GeometryFromOutput(kOp, handle, dy, false)
                                            : GeometryOf(kOp, handle, x_shape, false);
  return RunBackwardX(kOp, dy, W, nullptr, geometry, handle);
}

Tensor ConvBackwardW(const Tensor& dy, const Tensor& x, const ConvHandle& handle) {
  constexpr const char* kOp = "ConvBackwardW";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), false);
  CheckMatches(kOp, "dy", dy, "x", x);
  return RunBackwardW(kOp, dy, x, geometry, handle)[0];
}

Tensor ConvBackwardB(const Tensor& dy, const ConvHandle& handle) {
  constexpr const char* kOp = "ConvBackwardB";
  CheckFloat(kOp, "dy", dy);
  // The sum takes dy of any size. Only the channels have to fit.
  Recorder geometry = handle.recorder;
  Check(dy.rank() == geometry.spatial + 2 && dy.shape()[1] == geometry.out_channels, kOp,
        "dy must be (N, ", geometry.out_channels,
        ImageAxes(geometry.spatial) + std::strlen("(N, C"), ", got ", dy);
  geometry.batchsize = dy.shape()[0];
  TakeOutputSizes(dy.shape(), &geometry);
  geometry.bias = true;
  return RunBackwardB(kOp, dy, geometry, handle);
}

std::vector<Tensor> ConvBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                 const ConvHandle& handle, bool need_x, bool need_w, bool need_b) {
  constexpr const char* kOp = "ConvBackward";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), need_b);
  CheckShapeIs(kOp, "dy", dy, geometry.output_shape());
  CheckMatches(kOp, "dy", dy, "x", x);
  if (need_x) CheckMatches(kOp, "W", W, "x", x);
  const Tensor image = x.layout() ? AsChannelsLast(dy) : dy;  // once for all passes
  std::vector<Tensor> gradients(3);
  if (need_x) gradients[0] = RunBackwardX(kOp, image, W, x.layout(), geometry, handle);
  if (need_w) {
    std::vector<Tensor> parameters = RunBackwardW(kOp, image, x, geometry, handle);
    gradients[1] = parameters[0];
    if (need_b) gradients[2] = parameters[1];
  } else if (need_b) {
    gradients[2] = RunBackwardB(kOp, image, geometry, handle);
  }
  return gradients;
}

void ConvSpec::CheckAs(const CallChecker& call, const Shape& x, const Shape& y) const {
  const Recorder& g = geometry;
  Recorder made = WithInput(call.op(), g, g.input_shape());
  if (pass == ConvPass::kBackwardB) {  // the bias's gradient takes dy of any size
    TakeOutputSizes(g.output_shape(), &made);
    made.col_width = g.col_width;
  }
  call.Require(made == g && g.batchsize >= 1 && !g.ceil_mode && !g.adaptive,
               "the geometry is not that of a convolution: ", g.ToString());
  call.RequireShape(g.output_shape());
  call.RequireFloat("x", dtype);
  call.Require(pass == ConvPass::kForward || !(has_add || activation),
               "only a forward pass adds and has an activation");
  CheckActivation(call.op(), activation);
  call.Require(formula::KeepsZero(activation), "the activation of zero is not zero");
  call.RequireLayout("x_layout", x_layout, x, dtype);
  call.RequireLayout("dy_layout", dy_layout, y, dtype);
  call.RequireThreads(threads);
  call.RequireAlignment(alignment);
}

void ConvSpec::VisitAs(ArgumentVisitor& visit, const Shape& x, const Shape& y, int64_t bias) const {
  const Shape W = geometry.weight_shape();
  switch (pass) {
    case ConvPass::kForward:
      visit.Input("x", x, dtype, {.layout = &x_layout});
      visit.Input("W", W, dtype, {.typed_as = "x", .weight = true});
      visit.Input("b", geometry.bias ? Shape{bias} : Shape(), dtype,
                  {.left_out = !geometry.bias, .typed_as = "x"});
      visit.Input("add", y, dtype, {.left_out = !has_add, .typed_as = "x"});
      visit.Output("y", y, dtype);
      return;
    case ConvPass::kBackwardX:
      visit.Input("dy", y, dtype, {.layout = &dy_layout});
      visit.Input("W", W, dtype, {.typed_as = "dy", .weight = true});
      visit.Output("dx", x, dtype, {.layout = &x_layout});
      return;
    case ConvPass::kBackwardW:
      visit.Input("dy", y, dtype, {.layout = &dy_layout});
      visit.Input("x", x, dtype, {.typed_as = "dy", .layout = &x_layout});
      visit.Output("dW", W, dtype);
      if (geometry.bias) visit.Output("db", {bias}, dtype);
      return;
    case ConvPass::kBackwardB:
      visit.Input("dy", y, dtype, {.layout = &dy_layout});
      visit.Output("db", {bias}, dtype);
      return;
  }
}

void ConvStatisticsSpec::CheckFields(const CallChecker& call) const {
  call.Require(pass == ConvPass::kForward && !has_add && !activation,
               "sums are those of a forward pass without addition and activation");
  ConvSpec::CheckFields(call);
}

}  // namespace singa
