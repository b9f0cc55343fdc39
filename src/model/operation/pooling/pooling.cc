#include "singa/operation/pooling.h"

#include <limits>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/pooling/spec.h"

namespace singa {
namespace {

const Shape& InputShape(const char* op, const Tensor& x) {
  CheckFloat(op, "x", x);
  return x.shape();
}

void CheckMode(const char* op, PoolMode mode) {
  Check(mode >= PoolMode::kMax && mode <= PoolMode::kAverageIncludePad, op, "there is no mode ",
        static_cast<int>(mode));
}

void CheckPositions(const char* op, const Recorder& geometry) {
  Check(geometry.pixels() <= std::numeric_limits<int32_t>::max(), op, "positions in an image of ",
        List{geometry.Along(&Recorder::Axis::size)}, " exceed int32");
}

/// The pooling whose window is the whole image.
Recorder GlobalRecorder(const char* op, const Shape& x) {
  return AdaptivePoolRecorder(op, x,
                              std::vector<int64_t>(static_cast<size_t>(SpatialAxes(op, x)), 1));
}

PoolMode AdaptiveMode(bool is_max) {
  return is_max ? PoolMode::kMax : PoolMode::kAverageExcludePad;
}

std::vector<Tensor> Forward(const Recorder& geometry, PoolMode mode, const Tensor& x, bool save) {
  const PoolingForwardSpec spec{{geometry, mode, x.data_type(), x.layout()}, save};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, geometry.output_shape(), device, spec.dtype);
  Tensor saved;
  if (save) saved = NewOutput(*plan, 1, geometry.output_shape(), device, kInt32);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {y, saved});
  return {y, saved};
}

/// The arguments fit the geometry, and each other.
void CheckBackward(const char* op, const Recorder& geometry, const Tensor& dy, const Tensor& x,
                   const Tensor& saved) {
  CheckShapeIs(op, "dy", dy, geometry.output_shape());
  if (!x.empty()) {
    CheckShapeIs(op, "x", x, geometry.input_shape());
    CheckDType(op, "x", x, dy.data_type());
    CheckSameDevice(op, "x", x, "dy", dy);
  }
  if (!saved.empty()) {
    CheckShapeIs(op, "saved", saved, geometry.output_shape());
    CheckDType(op, "saved", saved, kInt32);
    CheckSameDevice(op, "saved", saved, "dy", dy);
  }
}

Tensor Backward(const Recorder& geometry, PoolMode mode, const Tensor& dy, const Tensor& x,
                const Tensor& saved) {
  const PoolingBackwardSpec spec{{geometry, mode, dy.data_type(), x.empty() ? nullptr : x.layout()},
                                 !saved.empty(),
                                 dy.layout()};
  const DevicePtr device = dy.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, geometry.input_shape(), device, spec.dtype);
  const Tensor kept = mode == PoolMode::kMax ? x : Tensor();
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, kept), InPlanLayout(*plan, 2, saved)},
      {dx});
  return dx;
}

}  // namespace

PoolingHandle::PoolingHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                             const std::vector<int64_t>& stride,
                             const std::vector<int64_t>& padding, bool is_max, bool ceil_mode,
                             bool count_include_pad, const std::vector<int64_t>& dilation)
    : recorder(PoolRecorder("Pooling", InputShape("Pooling", input), kernel, stride, padding,
                            dilation, ceil_mode)),
      mode(is_max              ? PoolMode::kMax
           : count_include_pad ? PoolMode::kAverageIncludePad
                               : PoolMode::kAverageExcludePad) {}

std::vector<Tensor> PoolingForward(const PoolingHandle& handle, const Tensor& x, bool training) {
  const char* op = "PoolingForward";
  CheckMode(op, handle.mode);
  const Recorder geometry = GeometryFor(op, handle.recorder, InputShape(op, x));
  const bool save = training && handle.mode == PoolMode::kMax;
  if (save) CheckPositions(op, geometry);
  return Forward(geometry, handle.mode, x, save);
}

Tensor PoolingBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                       const Tensor& y, const Tensor& saved) {
  const char* op = "PoolingBackward";
  CheckMode(op, handle.mode);
  CheckFloat(op, "dy", dy);
  Shape x_shape = handle.recorder.input_shape();
  if (!x.empty()) {
    x_shape = x.shape();
  } else {
    Check(handle.mode != PoolMode::kMax, op, "x is an empty tensor (None)");
    if (dy.rank() > 0) x_shape[0] = dy.shape(0);
  }
  const Recorder geometry = GeometryFor(op, handle.recorder, x_shape);
  const Tensor positions = handle.mode == PoolMode::kMax ? saved : Tensor();
  CheckBackward(op, geometry, dy, x, positions);
  if (!y.empty()) CheckShapeIs(op, "y", y, geometry.output_shape());
  return Backward(geometry, handle.mode, dy, x, positions);
}

Tensor GlobalAveragePoolForward(const Tensor& x) {
  const char* op = "GlobalAveragePoolForward";
  const Recorder geometry = GlobalRecorder(op, InputShape(op, x));
  return Forward(geometry, PoolMode::kAverageExcludePad, x, false)[0];
}

Tensor GlobalAveragePoolBackward(const Tensor& dy, const Shape& x_shape, const Tensor& x) {
  const char* op = "GlobalAveragePoolBackward";
  CheckFloat(op, "dy", dy);
  const Recorder geometry = GlobalRecorder(op, x_shape);
  CheckBackward(op, geometry, dy, x, {});
  return Backward(geometry, PoolMode::kAverageExcludePad, dy, x, {});
}

std::vector<Tensor> AdaptivePoolForward(const Tensor& x, const std::vector<int64_t>& output_size,
                                        bool is_max, bool training) {
  const char* op = "AdaptivePoolForward";
  const Recorder geometry = AdaptivePoolRecorder(op, InputShape(op, x), output_size);
  const bool save = training && is_max;
  if (save) CheckPositions(op, geometry);
  return Forward(geometry, AdaptiveMode(is_max), x, save);
}

Tensor AdaptivePoolBackward(const Tensor& dy, const Shape& x_shape, bool is_max, const Tensor& x,
                            const Tensor& saved) {
  const char* op = "AdaptivePoolBackward";
  CheckFloat(op, "dy", dy);
  Check(dy.rank() == SpatialAxes(op, x_shape) + 2, op, "dy must have as many axes as x ", x_shape,
        ", got ", dy);
  Check(!is_max || !x.empty() || !saved.empty(), op, "x and saved are empty tensors (None)");
  const Recorder geometry = AdaptivePoolRecorder(
      op, x_shape, std::vector<int64_t>(dy.shape().begin() + 2, dy.shape().end()));
  const Tensor positions = is_max ? saved : Tensor();
  CheckBackward(op, geometry, dy, x, positions);
  return Backward(geometry, AdaptiveMode(is_max), dy, x, positions);
}

namespace {

/// A geometry that PoolRecorder or AdaptivePoolRecorder makes.
void CheckGeometry(const Recorder& g, const CallChecker& call) {
  using Axis = Recorder::Axis;
  call.Require(g.spatial >= 1 && g.spatial <= Recorder::kMostAxes, "images have 1 to 3 axes, not ",
               g.spatial);
  std::vector<int64_t> padding = g.Along(&Axis::before);
  const std::vector<int64_t> after = g.Along(&Axis::after);
  padding.insert(padding.end(), after.begin(), after.end());
  const Recorder made =
      g.adaptive
          ? AdaptivePoolRecorder(call.op(), g.input_shape(), g.Along(&Axis::windows))
          : PoolRecorder(call.op(), g.input_shape(), g.Along(&Axis::kernel), g.Along(&Axis::stride),
                         padding, g.Along(&Axis::dilation), g.ceil_mode);
  call.Require(made == g, "the geometry is not that of a pooling: ", g.ToString());
}

}  // namespace

void PoolingForwardSpec::CheckCall(CallChecker& call) const {
  CheckGeometry(geometry, call);
  call.RequireFloat("x", dtype);
  call.Require(!save || mode == PoolMode::kMax, "only a maximum saves positions");
  if (save) CheckPositions(call.op(), geometry);
  call.RequireLayout("x_layout", x_layout, geometry.input_shape(), dtype);
  call.Input("x", geometry.input_shape(), dtype);
  call.Output("y", geometry.output_shape(), dtype);
  call.OutputIf(save, "saved", geometry.output_shape(), kInt32);
}

void PoolingBackwardSpec::CheckCall(CallChecker& call) const {
  CheckGeometry(geometry, call);
  call.RequireFloat("dy", dtype);
  call.Require(!saved || mode == PoolMode::kMax, "only a maximum saves positions");
  if (saved) CheckPositions(call.op(), geometry);
  call.RequireLayout("x_layout", x_layout, geometry.input_shape(), dtype);
  call.RequireLayout("dy_layout", dy_layout, geometry.output_shape(), dtype);
  call.Input("dy", geometry.output_shape(), dtype);
  if (saved) {  // recorded steps then leave x out
    call.OptionalInput("x", geometry.input_shape(), dtype);
  } else {
    call.InputIf(mode == PoolMode::kMax, "x", geometry.input_shape(), dtype);
  }
  const Tensor& positions = call.InputIf(saved, "saved", geometry.output_shape(), kInt32);
  if (saved)
    for (const int32_t position : call.Values<int32_t>(positions))
      call.Require(position >= -1 && position < geometry.pixels(), "saved has ", position,
                   ", no position in an image of ", List{geometry.Along(&Recorder::Axis::size)});
  call.Output("dx", geometry.input_shape(), dtype);
}

}  // namespace singa
