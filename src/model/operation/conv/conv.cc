#include "singa/operation/conv.h"

#include <cstring>
#include <utility>

#include "core/layout/channel_lanes.h"
#include "core/tensor/copy.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/statistics_type.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/conv/norm_conv_spec.h"

namespace singa {
namespace {

PlanOptions ChoiceOf(const ConvHandle& handle) {
  return {handle.follows_default ? GetPreference() : handle.preference,
          handle.workspace_byte_limit};
}

/// `t` has the type and device of `other`.
void CheckMatches(const char* op, const char* name, const Tensor& t, const char* other_name,
                  const Tensor& other) {
  CheckGiven(op, name, t);
  Check<TypeError>(t.data_type() == other.data_type(), op, name, " must have the type of ",
                   other_name, ", ", DTypeName(other.data_type()), ", got ", t);
  CheckSameDevice(op, name, t, other_name, other);
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

ConvSpec SpecOf(ConvPass pass, const Recorder& geometry, const Tensor& first) {
  ConvSpec spec;
  spec.pass = pass;
  spec.dtype = first.data_type();
  spec.geometry = geometry;
  return spec;
}

Tensor Zeros(const Shape& shape, const Tensor& like) {
  return Full(shape, 0, like.device(), like.data_type());
}

/// A permuted view of rows of features as the channels-last image that it is, on the CPU, to which
/// the layout belongs; other tensors as they are.
Tensor AsChannelsLast(const Tensor& t) {
  if (t.device()->kind() != DeviceKind::kCpu) return t;
  const LayoutPtr layout = LaneLayout(t.shape(), t.data_type(), LaneTag::kNhwc);
  return LiesAs(t, layout) ? t.ToLayout(layout) : t;
}

Tensor RunBackwardX(const Tensor& dy, const Tensor& W, const LayoutPtr& x_layout,
                    const Recorder& geometry, const PlanOptions& choice) {
  ConvSpec spec = SpecOf(ConvPass::kBackwardX, geometry, dy);
  if (dy.size() == 0) return Zeros(geometry.input_shape(), dy);
  spec.geometry.bias = false;
  spec.x_layout = x_layout;
  spec.dy_layout = dy.layout();
  spec.alignment = AlignmentOf({&dy, &W});
  const DevicePtr device = dy.device();
  const PlanPtr plan = FindPlan(*device, spec, choice);
  Tensor dx = NewOutput(*plan, 0, geometry.input_shape(), device, spec.dtype);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, W)}, {dx});
  return dx;
}

/// {dW} or {dW, db}, by geometry.bias.
std::vector<Tensor> RunBackwardW(const Tensor& dy, const Tensor& x, const Recorder& geometry,
                                 const PlanOptions& choice) {
  const Shape b_shape = {geometry.out_channels};
  std::vector<Tensor> gradients;
  if (dy.size() == 0) {
    gradients.push_back(Zeros(geometry.weight_shape(), dy));
    if (geometry.bias) gradients.push_back(Zeros(b_shape, dy));
    return gradients;
  }
  ConvSpec spec = SpecOf(ConvPass::kBackwardW, geometry, dy);
  spec.x_layout = x.layout();
  spec.dy_layout = dy.layout();
  spec.alignment = AlignmentOf({&dy, &x});
  const DevicePtr device = dy.device();
  const PlanPtr plan = FindPlan(*device, spec, choice);
  gradients.push_back(NewOutput(*plan, 0, geometry.weight_shape(), device, spec.dtype));
  if (geometry.bias) gradients.push_back(NewOutput(*plan, 1, b_shape, device, spec.dtype));
  const Tensor inputs[] = {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, x)};
  Run(spec, device, plan, inputs, gradients);
  return gradients;
}

Tensor RunBackwardB(const Tensor& dy, const Recorder& geometry, const PlanOptions& choice) {
  if (dy.size() == 0) return Zeros({geometry.out_channels}, dy);
  ConvSpec spec = SpecOf(ConvPass::kBackwardB, geometry, dy);
  spec.dy_layout = dy.layout();
  spec.alignment = AlignmentOf({&dy});
  const DevicePtr device = dy.device();
  const PlanPtr plan = FindPlan(*device, spec, choice);
  Tensor db = NewOutput(*plan, 0, {geometry.out_channels}, device, spec.dtype);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, dy)}, {db});
  return db;
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
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), !b.empty());
  CheckShapeIs(kOp, "W", W, geometry.weight_shape());
  CheckMatches(kOp, "W", W, "x", x);
  if (geometry.bias) {
    CheckShapeIs(kOp, "b", b, {geometry.out_channels});
    CheckMatches(kOp, "b", b, "x", x);
  }
  const Shape y_shape = geometry.output_shape();
  if (!add.empty()) {
    CheckShapeIs(kOp, "add", add, y_shape);
    CheckMatches(kOp, "add", add, "x", x);
  }
  if (x.size() == 0) return Tensor(y_shape, x.device(), x.data_type());
  ConvSpec spec = SpecOf(ConvPass::kForward, geometry, x);
  spec.has_add = !add.empty();
  spec.relu = relu;
  spec.choice = ChoiceOf(handle);
  return RunConvForward(spec, x, W, b, add);
}

namespace {

template <class Spec>
Tensor RunForward(Spec spec, const Tensor& x, const Tensor& W, const Tensor& b, const Tensor& add) {
  const DevicePtr device = x.device();
  spec.x_layout = x.layout();
  spec.alignment = AlignmentOf({&x, &W, &b, &add});
  const PlanPtr plan = FindPlan(*device, spec, spec.choice);
  const Tensor y = NewOutput(*plan, 0, spec.geometry.output_shape(), device, spec.dtype);
  Tensor inputs[4];
  size_t count = 0;
  for (const Tensor* t : {&x, &W, &b, &add}) {
    if (t->empty()) continue;
    inputs[count] = InPlanLayout(*plan, count, *t);
    ++count;
  }
  Run(spec, device, plan, std::span<const Tensor>(inputs, count), {{y}});
  return y;
}

}  // namespace

Tensor RunConvForward(ConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b,
                      const Tensor& add) {
  return RunForward(std::move(spec), x, W, b, add);
}

Tensor RunConvForward(NormConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b) {
  return RunForward(std::move(spec), x, W, b, Tensor());
}

Tensor ConvBackwardX(const Tensor& dy, const Tensor& W, const ConvHandle& handle,
                     const Shape& x_shape) {
  constexpr const char* kOp = "ConvBackwardX";
  CheckFloat(kOp, "dy", dy);
  const Recorder geometry = x_shape.empty() ? GeometryFromOutput(kOp, handle, dy, false)
                                            : GeometryOf(kOp, handle, x_shape, false);
  CheckShapeIs(kOp, "dy", dy, geometry.output_shape());
  CheckShapeIs(kOp, "W", W, geometry.weight_shape());
  CheckMatches(kOp, "W", W, "dy", dy);
  return RunBackwardX(dy, W, nullptr, geometry, ChoiceOf(handle));
}

Tensor ConvBackwardW(const Tensor& dy, const Tensor& x, const ConvHandle& handle) {
  constexpr const char* kOp = "ConvBackwardW";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), false);
  CheckShapeIs(kOp, "dy", dy, geometry.output_shape());
  CheckMatches(kOp, "dy", dy, "x", x);
  return RunBackwardW(dy, x, geometry, ChoiceOf(handle))[0];
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
  return RunBackwardB(dy, geometry, ChoiceOf(handle));
}

std::vector<Tensor> ConvBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                 const ConvHandle& handle, bool need_x, bool need_w, bool need_b) {
  constexpr const char* kOp = "ConvBackward";
  CheckFloat(kOp, "x", x);
  const Recorder geometry = GeometryOf(kOp, handle, x.shape(), need_b);
  CheckShapeIs(kOp, "dy", dy, geometry.output_shape());
  CheckMatches(kOp, "dy", dy, "x", x);
  if (need_x) {
    CheckShapeIs(kOp, "W", W, geometry.weight_shape());
    CheckMatches(kOp, "W", W, "x", x);
  }
  const PlanOptions choice = ChoiceOf(handle);
  const Tensor image = x.layout() ? AsChannelsLast(dy) : dy;  // once for all passes
  std::vector<Tensor> gradients(3);
  if (need_x) gradients[0] = RunBackwardX(image, W, x.layout(), geometry, choice);
  if (need_w) {
    std::vector<Tensor> parameters = RunBackwardW(image, x, geometry, choice);
    gradients[1] = parameters[0];
    if (need_b) gradients[2] = parameters[1];
  } else if (need_b) {
    gradients[2] = RunBackwardB(image, geometry, choice);
  }
  return gradients;
}

namespace {

/// Fields that all convolutions have; `x` and `y` are the shapes of image and result.
void CheckFields(const ConvSpec& spec, const Shape& x, const Shape& y, const CallChecker& call) {
  const Recorder& g = spec.geometry;
  Recorder made = WithInput(call.op(), g, g.input_shape());
  if (spec.pass == ConvPass::kBackwardB) {  // the bias's gradient takes dy of any size
    TakeOutputSizes(g.output_shape(), &made);
    made.col_width = g.col_width;
  }
  call.Require(made == g && g.batchsize >= 1 && !g.ceil_mode && !g.adaptive,
               "the geometry is not that of a convolution: ", g.ToString());
  call.RequireShape(g.output_shape());
  call.RequireFloat("x", spec.dtype);
  call.Require(spec.pass == ConvPass::kForward || !(spec.has_add || spec.relu),
               "only a forward pass adds and cuts off");
  call.RequireLayout("x_layout", spec.x_layout, x, spec.dtype);
  call.RequireLayout("dy_layout", spec.dy_layout, y, spec.dtype);
  call.RequireThreads(spec.threads);
  call.RequireAlignment(spec.alignment);
}

}  // namespace

void CheckConvCall(const ConvSpec& spec, const Shape& x, const Shape& y, int64_t bias,
                   CallChecker& call) {
  CheckFields(spec, x, y, call);
  const Recorder& g = spec.geometry;
  switch (spec.pass) {
    case ConvPass::kForward:
      call.Input("x", x, spec.dtype);
      call.Input("W", g.weight_shape(), spec.dtype);
      if (g.bias) call.Input("b", {bias}, spec.dtype);
      if (spec.has_add) call.Input("add", y, spec.dtype);
      call.Output("y", y, spec.dtype);
      return;
    case ConvPass::kBackwardX:
      call.Input("dy", y, spec.dtype);
      call.Input("W", g.weight_shape(), spec.dtype);
      call.Output("dx", x, spec.dtype);
      return;
    case ConvPass::kBackwardW:
      call.Input("dy", y, spec.dtype);
      call.Input("x", x, spec.dtype);
      call.Output("dW", g.weight_shape(), spec.dtype);
      if (g.bias) call.Output("db", {bias}, spec.dtype);
      return;
    case ConvPass::kBackwardB:
      call.Input("dy", y, spec.dtype);
      call.Output("db", {bias}, spec.dtype);
      return;
  }
}

void ConvSpec::CheckCall(CallChecker& call) const {
  CheckConvCall(*this, geometry.input_shape(), geometry.output_shape(), geometry.out_channels,
                call);
}

void ConvStatisticsSpec::CheckCall(CallChecker& call) const {
  call.Require(pass == ConvPass::kForward && !has_add && !relu,
               "sums are those of a forward pass without addition and ReLU");
  ConvSpec::CheckCall(call);
  const DType statistics = StatisticsType(dtype);
  call.Output("sum", {geometry.out_channels}, statistics);
  call.Output("sum of squares", {geometry.out_channels}, statistics);
}

}  // namespace singa
