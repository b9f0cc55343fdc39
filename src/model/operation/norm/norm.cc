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
  std::vector<Tensor> results = CallForAll(spec, {Shaped(x, spec.shape), a, b}, {.op = view.op});
  results[0] = Shaped(results[0], x.shape());
  return results;
}

std::vector<Tensor> Backward(View view, const Tensor& dy, const Tensor& x, const Tensor& scale,
                             const Tensor& mean, const Tensor& inv_std, bool need_x,
                             bool need_scale, bool need_bias) {
  CheckLike(view.op, "dy", dy, "x", x);
  const Tensor a = Affine(view, "scale", scale, x);
  view.geometry.centered = !mean.empty();
  view.geometry.has_scale = !scale.empty();
  const NormBackwardSpec spec{view.geometry, need_x, need_scale, need_bias};
  std::vector<Tensor> results =
      CallForAll(spec, {Shaped(dy, spec.shape), Shaped(x, spec.shape), a, mean, inv_std},
                 {.op = view.op, .zeros = !need_x && !need_scale && !need_bias});
  results[0] = Shaped(results[0], x.shape());
  for (Tensor* t : {&results[1], &results[2]})
    if (!t->empty()) *t = Shaped(scale.empty() ? *t : t->AsType(scale.data_type()), view.affine);
  return results;
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

void NormGeometry::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.RequireShape(shape);
  call.Require(shape.rank() >= 2, "x must have shape (N, C, ...), got ", shape);
  CheckGroups(call.op(), channels(), groups);
}

void NormForwardSpec::CheckFields(const CallChecker& call) const {
  NormGeometry::CheckFields(call);
  CheckEpsilon(call.op(), epsilon);
}

void NormBackwardSpec::CheckFields(const CallChecker& call) const {
  NormGeometry::CheckFields(call);
  call.Require(need_x || need_scale || need_bias, "no gradient is asked for");
}

}  // namespace singa
