#include "singa/operation/norm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/statistics_type.h"
#include "model/operation/check.h"
#include "model/operation/norm/spec.h"

namespace singa {
namespace {

constexpr char kLayerNorm[] = "LayerNorm";
constexpr char kChannelNorm[] = "ChannelNorm";
constexpr char kGroupNorm[] = "GroupNorm";

void CheckGroups(const char* op, int64_t channels, int64_t groups) {
  Check(groups >= 1 && groups <= std::max<int64_t>(channels, 1) && channels % groups == 0, op,
        "groups must divide the ", channels, " channels of x, got ", groups);
}

/// How a function sees x: which values a statistic is taken of, and the shape of scale and bias.
struct View {
  const char* op;
  NormGeometry geometry;
  Shape affine;
};

/// Statistics over the axes from `axis` on: x is (rows, values of a row).
View LayerView(const Tensor& x, int64_t axis) {
  CheckFloat(kLayerNorm, "x", x);
  const int first = NormalizeAxis(kLayerNorm, axis, x.rank());
  Shape affine;
  for (int i = first; i < x.rank(); ++i) affine.push_back(x.shape(i));
  return {
      .op = kLayerNorm,
      .geometry = {.shape = {x.shape().Count(0, first), affine.Count()}, .dtype = x.data_type()},
      .affine = affine};
}

View ChannelView(const char* op, const Tensor& x) {
  CheckFloat(op, "x", x);
  Check(x.rank() >= 2, op, "x must have shape (N, C, ...), got ", x);
  return {.op = op,
          .geometry = {.shape = x.shape(), .dtype = x.data_type(), .x_layout = x.layout()},
          .affine = {x.shape(1)}};
}

View ChannelNormView(const Tensor& x) {
  View view = ChannelView(kChannelNorm, x);
  view.geometry.per_position = true;
  return view;
}

View GroupView(const Tensor& x, int64_t groups) {
  View view = ChannelView(kGroupNorm, x);
  CheckGroups(kGroupNorm, x.shape(1), groups);
  view.geometry.groups = groups;
  return view;
}

/// scale or bias as the kernels take it: (C), plain, of the statistics' type; empty stays empty.
Tensor Affine(const View& view, const char* name, const Tensor& t, const Tensor& x) {
  if (t.empty()) return t;
  const DType statistics = StatisticsType(x.data_type());
  CheckShapeIs(view.op, name, t, view.affine);
  Check<TypeError>(t.data_type() == statistics || t.data_type() == x.data_type(), view.op, name,
                   " must be ", DTypeName(statistics), " or of x's type, got ", t);
  CheckSameDevice(view.op, name, t, "x", x);
  return t.AsType(statistics).Reshape({view.geometry.channels()});
}

/// What forward has returned.
Tensor Statistics(const View& view, const char* name, const Tensor& t, const Tensor& x) {
  CheckShapeIs(view.op, name, t, {view.geometry.statistics()});
  CheckDType(view.op, name, t, StatisticsType(x.data_type()));
  CheckSameDevice(view.op, name, t, "x", x);
  return t;
}

/// In the shape of the Spec, which is another one for layer norm only.
Tensor Shaped(const Tensor& t, const Shape& shape) {
  return t.empty() || t.shape() == shape ? t : t.Reshape(shape);
}

std::vector<Tensor> Forward(View view, const Tensor& x, const Tensor& scale, const Tensor& bias,
                            double epsilon, bool centered) {
  CheckEpsilon(view.op, epsilon);
  const Tensor a = Affine(view, "scale", scale, x), b = Affine(view, "bias", bias, x);
  view.geometry.centered = centered;
  view.geometry.has_scale = !scale.empty();
  const NormForwardSpec spec{view.geometry, !bias.empty(), epsilon};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Shape statistics{spec.statistics()};
  const DType type = StatisticsType(spec.dtype);
  const Tensor y = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  const Tensor mean = centered ? NewOutput(*plan, 1, statistics, device, type) : Tensor();
  const Tensor inv_std = NewOutput(*plan, 2, statistics, device, type);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, Shaped(x, spec.shape)), InPlanLayout(*plan, 1, a),
       InPlanLayout(*plan, 2, b)},
      {y, mean, inv_std});
  return {Shaped(y, x.shape()), mean, inv_std};
}

std::vector<Tensor> Backward(View view, const Tensor& dy, const Tensor& x, const Tensor& scale,
                             const Tensor& mean, const Tensor& inv_std, bool need_x,
                             bool need_scale, bool need_bias) {
  CheckLike(view.op, "dy", dy, "x", x);
  const Tensor a = Affine(view, "scale", scale, x);
  view.geometry.centered = !mean.empty();
  view.geometry.has_scale = !scale.empty();
  if (!mean.empty()) Statistics(view, "mean", mean, x);
  Statistics(view, "inv_std", inv_std, x);
  if (!need_x && !need_scale && !need_bias) return {Tensor(), Tensor(), Tensor()};

  const NormBackwardSpec spec{view.geometry, need_x, need_scale, need_bias};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Shape channels{spec.channels()};
  const DType type = StatisticsType(spec.dtype);
  const Tensor dx = need_x ? NewOutput(*plan, 0, spec.shape, device, spec.dtype) : Tensor();
  Tensor dscale = need_scale ? NewOutput(*plan, 1, channels, device, type) : Tensor();
  Tensor dbias = need_bias ? NewOutput(*plan, 2, channels, device, type) : Tensor();
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, Shaped(dy, spec.shape)),
       InPlanLayout(*plan, 1, Shaped(x, spec.shape)), InPlanLayout(*plan, 2, a),
       InPlanLayout(*plan, 3, mean), InPlanLayout(*plan, 4, inv_std)},
      {dx, dscale, dbias});
  const auto like_scale = [&](const Tensor& t) {
    if (t.empty()) return t;
    return Shaped(scale.empty() ? t : t.AsType(scale.data_type()), view.affine);
  };
  return {Shaped(dx, x.shape()), like_scale(dscale), like_scale(dbias)};
}

}  // namespace

std::vector<Tensor> LayerNormForward(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                     int64_t axis, double epsilon, bool centered) {
  return Forward(LayerView(x, axis), x, scale, bias, epsilon, centered);
}

std::vector<Tensor> LayerNormBackward(const Tensor& dy, const Tensor& x, const Tensor& scale,
                                      const Tensor& mean, const Tensor& inv_std, int64_t axis,
                                      bool need_x, bool need_scale, bool need_bias) {
  return Backward(LayerView(x, axis), dy, x, scale, mean, inv_std, need_x, need_scale, need_bias);
}

std::vector<Tensor> ChannelNormForward(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                       double epsilon, bool centered) {
  return Forward(ChannelNormView(x), x, scale, bias, epsilon, centered);
}

std::vector<Tensor> ChannelNormBackward(const Tensor& dy, const Tensor& x, const Tensor& scale,
                                        const Tensor& mean, const Tensor& inv_std, bool need_x,
                                        bool need_scale, bool need_bias) {
  return Backward(ChannelNormView(x), dy, x, scale, mean, inv_std, need_x, need_scale, need_bias);
}

std::vector<Tensor> GroupNormForward(const Tensor& x, int64_t groups, const Tensor& scale,
                                     const Tensor& bias, double epsilon) {
  return Forward(GroupView(x, groups), x, scale, bias, epsilon, true);
}

std::vector<Tensor> GroupNormBackward(const Tensor& dy, const Tensor& x, int64_t groups,
                                      const Tensor& scale, const Tensor& mean,
                                      const Tensor& inv_std, bool need_x, bool need_scale,
                                      bool need_bias) {
  CheckGiven(kGroupNorm, "mean", mean);
  return Backward(GroupView(x, groups), dy, x, scale, mean, inv_std, need_x, need_scale, need_bias);
}

namespace {

/// The fields of both directions; the arguments that they share follow.
void CheckGeometry(const NormGeometry& geometry, const CallChecker& call) {
  call.RequireFloat("x", geometry.dtype);
  call.RequireShape(geometry.shape);
  call.Require(geometry.shape.rank() >= 2, "x must have shape (N, C, ...), got ", geometry.shape);
  CheckGroups(call.op(), geometry.channels(), geometry.groups);
  call.RequireLayout("x_layout", geometry.x_layout, geometry.shape, geometry.dtype);
}

}  // namespace

void NormForwardSpec::CheckCall(CallChecker& call) const {
  CheckGeometry(*this, call);
  CheckEpsilon(call.op(), epsilon);
  const DType type = StatisticsType(dtype);
  call.Input("x", shape, dtype);
  call.InputIf(has_scale, "scale", {channels()}, type);
  call.InputIf(has_bias, "bias", {channels()}, type);
  call.Output("y", shape, dtype);
  call.OutputIf(centered, "mean", {statistics()}, type);
  call.Output("inv_std", {statistics()}, type);
}

void NormBackwardSpec::CheckCall(CallChecker& call) const {
  CheckGeometry(*this, call);
  call.Require(need_x || need_scale || need_bias, "no gradient is asked for");
  const DType type = StatisticsType(dtype);
  call.Input("dy", shape, dtype);
  call.Input("x", shape, dtype);
  call.InputIf(has_scale, "scale", {channels()}, type);
  call.InputIf(centered, "mean", {statistics()}, type);
  call.Input("inv_std", {statistics()}, type);
  call.OutputIf(need_x, "dx", shape, dtype);
  call.OutputIf(need_scale, "dscale", {channels()}, type);
  call.OutputIf(need_bias, "dbias", {channels()}, type);
}

}  // namespace singa
