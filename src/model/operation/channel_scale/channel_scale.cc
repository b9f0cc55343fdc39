#include "model/operation/channel_scale/channel_scale.h"

#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/channel_scale/spec.h"

namespace singa {
namespace {

/// Whether s has one number for each channel of x.
bool IsScaleOf(const Tensor& s, const Tensor& x) {
  if (x.rank() != 4 || (s.rank() != 3 && s.rank() != 4)) return false;
  if (s.data_type() != x.data_type() || s.device() != x.device()) return false;
  const bool images = s.rank() == 3 || s.shape(0) == 1 || s.shape(0) == x.shape(0);
  return images && s.shape(-3) == x.shape(1) && s.shape(-2) == 1 && s.shape(-1) == 1 &&
         x.shape(2) * x.shape(3) > 1;
}

/// `t` lies in a layout with channels innermost.
bool HasChannelsInside(const Tensor& t) {
  return t.device()->kind() == DeviceKind::kCpu &&
         LaneTagOf(t.layout(), t.shape(), t.data_type()).has_value();
}

ChannelScaleSpec SpecOf(const Tensor& x, const Tensor& s, const LayoutPtr& layout) {
  return {.shape = x.shape(),
          .per_image = s.rank() == 4 && s.shape(0) == x.shape(0),
          .dtype = x.data_type(),
          .x_layout = layout};
}

/// s in the Spec's shape.
Tensor Shaped(const Tensor& s, const Shape& shape) {
  return s.shape() == shape ? s : s.Reshape(shape);
}

}  // namespace

std::optional<Tensor> ScaleChannels(const Tensor& a, const Tensor& b) {
  const bool first = IsScaleOf(b, a);
  if (!first && !IsScaleOf(a, b)) return std::nullopt;
  const Tensor &x = first ? a : b, &s = first ? b : a;
  if (!HasChannelsInside(x)) return std::nullopt;
  const ChannelScaleSpec spec = SpecOf(x, s, x.layout());
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, x), InPlanLayout(*plan, 1, Shaped(s, spec.s_shape()))}, {y});
  return y;
}

std::optional<std::vector<Tensor>> ScaleChannelsBackward(const Tensor& dy, const Tensor& a,
                                                         const Tensor& b, bool need_a,
                                                         bool need_b) {
  const bool first = IsScaleOf(b, a);
  if (!first && !IsScaleOf(a, b)) return std::nullopt;
  const Tensor &x = first ? a : b, &s = first ? b : a;
  if (dy.data_type() != x.data_type()) return std::nullopt;
  const Tensor& laid = HasChannelsInside(x) ? x : dy;
  if (!HasChannelsInside(laid)) return std::nullopt;
  std::vector<Tensor> gradients(2);
  if (!need_a && !need_b) return gradients;
  ChannelScaleBackwardSpec spec{SpecOf(x, s, laid.layout())};
  spec.need_x = first ? need_a : need_b;
  spec.need_s = first ? need_b : need_a;
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  Tensor dx, ds;
  if (spec.need_x) dx = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  if (spec.need_s) ds = NewOutput(*plan, 1, spec.s_shape(), device, spec.dtype);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, x),
       InPlanLayout(*plan, 2, Shaped(s, spec.s_shape()))},
      {dx, ds});
  gradients[first ? 0 : 1] = dx;
  if (spec.need_s) gradients[first ? 1 : 0] = Shaped(ds, s.shape());
  return gradients;
}

namespace {

void CheckFields(const ChannelScaleSpec& spec, const CallChecker& call) {
  call.RequireFloat("x", spec.dtype);
  call.RequireShape(spec.shape);
  call.Require(spec.shape.rank() == 4, "x must have shape (N, C, H, W), got ", spec.shape);
  call.RequireLayout("x_layout", spec.x_layout, spec.shape, spec.dtype);
}

}  // namespace

void ChannelScaleSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  call.Input("x", shape, dtype);
  call.Input("s", s_shape(), dtype);
  call.Output("y", shape, dtype);
}

void ChannelScaleBackwardSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  call.Require(need_x || need_s, "no gradient is needed");
  call.Input("dy", shape, dtype);
  call.Input("x", shape, dtype);
  call.Input("s", s_shape(), dtype);
  call.OutputIf(need_x, "dx", shape, dtype);
  call.OutputIf(need_s, "ds", s_shape(), dtype);
}

}  // namespace singa
