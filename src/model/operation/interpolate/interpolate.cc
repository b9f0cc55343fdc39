#include "singa/operation/interpolate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/interpolate/spec.h"
#include "singa/operation/indexing.h"

namespace singa {
namespace {

constexpr char kOp[] = "Interpolate";
/// Beyond these, a coordinate is no exact double.
constexpr double kMostCoordinate = 0x1p48;
/// Longest axis of a result that is no float.
constexpr int64_t kMostSelected = int64_t{1} << 24;

void CheckScale(const char* op, int64_t out, double scale) {
  Check(scale == 0 || (scale > 0 && std::isfinite(scale) &&
                       static_cast<double>(out + 1) / scale <= kMostCoordinate),
        op, "scale ", scale, " of an axis with size ", out, " is out of range");
}

formula::Interpolation HowOf(const InterpolationHandle& handle) {
  return {handle.mode,          handle.coordinates,     handle.nearest,
          handle.cubic_coeff_a, handle.exclude_outside, handle.antialias};
}

/// A resized axis.
struct Resized {
  int axis;
  int64_t size;
  double scale;
};

/// The axes that change, in their order.
std::vector<Resized> ResizedAxes(const Shape& x_shape, const std::vector<int64_t>& axes,
                                 const std::vector<int64_t>& sizes,
                                 const std::vector<double>& scales) {
  Check(axes.size() == sizes.size() && (scales.empty() || scales.size() == axes.size()), kOp,
        "axes, sizes and scales must be of one length, got ", axes.size(), ", ", sizes.size(),
        " and ", scales.size());
  std::vector<Resized> resized;
  uint32_t seen = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = NormalizeAxis(kOp, axes[i], x_shape.rank());
    Check(!(seen >> axis & 1), kOp, "axis ", axis, " appears twice for x ", x_shape);
    seen |= uint32_t{1} << axis;
    const int64_t length = x_shape[axis];
    Check(sizes[i] >= 0 && (length > 0 || sizes[i] == 0), kOp, "axis ", axis, " of x ", x_shape,
          " cannot have size ", sizes[i]);
    Check(scales.empty() || scales[i] > 0, kOp, "scales must be positive, got ",
          scales.empty() ? 0 : scales[i]);
    const double scale = scales.empty() ? 0 : scales[i];
    CheckScale(kOp, sizes[i], scale);
    const bool natural = scale * static_cast<double>(length) == static_cast<double>(sizes[i]);
    if (sizes[i] != length || (scale > 0 && !natural))
      resized.push_back({axis, sizes[i], natural ? 0 : scale});
  }
  std::sort(resized.begin(), resized.end(),
            [](const Resized& a, const Resized& b) { return a.axis < b.axis; });
  return resized;
}

/// The calls that resize these axes one after the other. Axes that do not change may lie between
/// those of one call.
std::vector<InterpolationFields> Passes(const InterpolationHandle& handle, DType dtype, Shape shape,
                                        const std::vector<Resized>& resized) {
  std::vector<InterpolationFields> passes;
  for (const Resized& one : resized) {
    if (passes.empty() || one.axis >= passes.back().first_axis + kMostInterpolated) {
      const Shape before = passes.empty() ? shape : passes.back().y_shape;
      passes.push_back({HowOf(handle), dtype, before, before, one.axis, 0});
    }
    InterpolationFields& pass = passes.back();
    pass.axes = one.axis - pass.first_axis + 1;
    pass.y_shape[one.axis] = one.size;
    pass.scales[one.axis - pass.first_axis] = one.scale;
  }
  return passes;
}

template <class Spec>
Tensor RunPass(const InterpolationFields& fields, const Tensor& from, const Shape& shape) {
  CheckShape(kOp, shape, SizeOf(fields.dtype));
  Spec spec{fields};
  spec.layout = from.layout();
  return Call(spec, {from});
}

/// Nearest neighbours of elements that are no floats: a selection of positions, axis by axis.
Tensor Select(const InterpolationHandle& handle, Tensor x, const std::vector<Resized>& resized) {
  for (const Resized& one : resized) {
    Check(one.size <= kMostSelected, kOp, "size ", one.size, " of axis ", one.axis,
          " is too large for x ", x);
    const formula::InterpolatedAxis axis{x.shape()[one.axis], one.size, one.scale};
    std::vector<int64_t> positions(static_cast<size_t>(one.size));
    for (int64_t i = 0; i < one.size; ++i)
      positions[static_cast<size_t>(i)] = formula::TapsOf(HowOf(handle), axis, i).begin;
    Tensor indices({one.size}, x.device(), kInt64);
    indices.CopyFromHost(positions.data(), positions.size() * sizeof(int64_t));
    x = Gather(x, one.axis, indices);
  }
  return x;
}

}  // namespace

InterpolationHandle::InterpolationHandle(InterpolationMode mode, CoordinateMode coordinates,
                                         NearestMode nearest, double cubic_coeff_a,
                                         bool exclude_outside, bool antialias)
    : mode(mode),
      coordinates(coordinates),
      nearest(nearest),
      cubic_coeff_a(cubic_coeff_a),
      exclude_outside(exclude_outside),
      antialias(antialias) {
  const auto known = [](auto value) {
    return static_cast<int>(value) >= 0 && static_cast<int>(value) < kEnumSize<decltype(value)>;
  };
  Check(known(mode), kOp, "unknown mode ", static_cast<int>(mode));
  Check(known(coordinates), kOp, "unknown coordinates ", static_cast<int>(coordinates));
  Check(known(nearest), kOp, "unknown rounding to the nearest ", static_cast<int>(nearest));
  Check(std::isfinite(cubic_coeff_a), kOp, "cubic_coeff_a must be finite, got ", cubic_coeff_a);
}

Tensor Interpolate(const InterpolationHandle& handle, const Tensor& x,
                   const std::vector<int64_t>& axes, const std::vector<int64_t>& sizes,
                   const std::vector<double>& scales) {
  CheckGiven(kOp, "x", x);
  const std::vector<Resized> resized = ResizedAxes(x.shape(), axes, sizes, scales);
  Check(handle.mode != InterpolationMode::kArea || scales.empty(), kOp,
        "an average has no scales, got ", scales.size());
  if (resized.empty()) return x.Clone();
  if (!IsFloat(x.data_type())) {
    Check<TypeError>(handle.mode == InterpolationMode::kNearest, kOp,
                     "this mode needs a float type, got ", x);
    return Select(handle, x, resized);
  }
  Tensor y = x;
  for (const InterpolationFields& pass : Passes(handle, x.data_type(), x.shape(), resized))
    y = RunPass<InterpolateSpec>(pass, y, pass.y_shape);
  return y;
}

Tensor InterpolateBackward(const InterpolationHandle& handle, const Tensor& dy,
                           const Shape& x_shape, const std::vector<int64_t>& axes,
                           const std::vector<double>& scales) {
  CheckFloat("InterpolateBackward", "dy", dy);
  Check(dy.rank() == x_shape.rank(), "InterpolateBackward", "dy ", dy.shape(),
        " must be of the rank of x ", x_shape);
  std::vector<int64_t> sizes;
  Shape y_shape = x_shape;
  for (const int64_t axis : axes) {
    const int a = NormalizeAxis(kOp, axis, x_shape.rank());
    sizes.push_back(dy.shape()[a]);
    y_shape[a] = dy.shape()[a];
  }
  CheckShapeIs("InterpolateBackward", "dy", dy, y_shape);
  const std::vector<Resized> resized = ResizedAxes(x_shape, axes, sizes, scales);
  if (resized.empty()) return dy.Clone();
  std::vector<InterpolationFields> passes = Passes(handle, dy.data_type(), x_shape, resized);
  Tensor dx = dy;
  for (auto pass = passes.rbegin(); pass != passes.rend(); ++pass)
    dx = RunPass<InterpolateBackwardSpec>(*pass, dx, pass->x_shape);
  return dx;
}

void InterpolationFields::CheckFields(const CallChecker& call) const {
  const Shape &x = x_shape, &y = y_shape;
  call.RequireShape(x);
  call.RequireShape(y);
  call.RequireFloat("x", dtype);
  call.Require(x.rank() == y.rank() && axes >= 1 && axes <= kMostInterpolated && first_axis >= 0 &&
                   first_axis <= x.rank() - axes,
               axes, " axes from axis ", first_axis, " are not those of x ", x, " and y ", y);
  for (int i = 0; i < x.rank(); ++i) {
    const int k = i - first_axis;
    const bool resized = k >= 0 && k < axes;
    call.Require(resized ? x[i] > 0 || y[i] == 0 : x[i] == y[i], "y ", y, " is not x ", x,
                 " resized");
    if (resized) CheckScale(call.op(), y[i], scales[k]);
  }
  call.Require(std::isfinite(how.cubic_coeff_a), "cubic_coeff_a is not finite");
}

}  // namespace singa
