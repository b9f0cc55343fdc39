#include "singa/operation/pooling.h"

#include <limits>

#include "model/operation/check.h"
#include "model/operation/dispatch.h"
#include "model/operation/pooling_spec.h"

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
  Check(geometry.height * geometry.width <= std::numeric_limits<int32_t>::max(), op,
        "positions in an image of ", geometry.height, " x ", geometry.width, " exceed int32");
}

/// The pooling whose window is the whole image.
Recorder GlobalRecorder(const char* op, const Shape& x) {
  Check(x.rank() == 4, op, "x has to have shape (N, C, H, W), got ", x);
  return PoolRecorder(op, x, {x[2], x[3]}, {1, 1}, {0, 0}, {1, 1}, false);
}

std::vector<Tensor> Forward(const Recorder& geometry, PoolMode mode, const Tensor& x, bool save) {
  const PoolingForwardSpec spec{.geometry = geometry,
                                .mode = mode,
                                .dtype = x.data_type(),
                                .save = save,
                                .x_layout = x.layout()};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, geometry.output_shape(), device, spec.dtype);
  Tensor saved;
  if (save) saved = NewOutput(*plan, 1, geometry.output_shape(), device, kInt32);
  Run(spec, device, plan, {Wanted(*plan, 0, x)}, {y, saved});
  return {y, saved};
}

Tensor Backward(const Recorder& geometry, PoolMode mode, const Tensor& dy, const Tensor& x,
                const Tensor& saved) {
  const PoolingBackwardSpec spec{.geometry = geometry,
                                 .mode = mode,
                                 .dtype = dy.data_type(),
                                 .saved = !saved.empty(),
                                 .x_layout = x.empty() ? nullptr : x.layout(),
                                 .dy_layout = dy.layout()};
  const DevicePtr device = dy.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, geometry.input_shape(), device, spec.dtype);
  const Tensor kept = mode == PoolMode::kMax ? x : Tensor();
  Run(spec, device, plan, {Wanted(*plan, 0, dy), Wanted(*plan, 1, kept), Wanted(*plan, 2, saved)},
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
  const Recorder geometry = WithInput(op, handle.recorder, InputShape(op, x));
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
  const Recorder geometry = WithInput(op, handle.recorder, x_shape);
  CheckShapeIs(op, "dy", dy, geometry.output_shape());
  if (!x.empty()) {
    CheckDType(op, "x", x, dy.data_type());
    CheckSameDevice(op, "x", x, "dy", dy);
  }
  if (!y.empty()) CheckShapeIs(op, "y", y, geometry.output_shape());
  if (handle.mode != PoolMode::kMax) return Backward(geometry, handle.mode, dy, x, {});
  if (!saved.empty()) {
    CheckShapeIs(op, "saved", saved, geometry.output_shape());
    CheckDType(op, "saved", saved, kInt32);
    CheckSameDevice(op, "saved", saved, "dy", dy);
  }
  return Backward(geometry, handle.mode, dy, x, saved);
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
  CheckShapeIs(op, "dy", dy, geometry.output_shape());
  if (!x.empty()) {
    CheckShapeIs(op, "x", x, x_shape);
    CheckDType(op, "x", x, dy.data_type());
    CheckSameDevice(op, "x", x, "dy", dy);
  }
  return Backward(geometry, PoolMode::kAverageExcludePad, dy, x, {});
}

namespace {

/// A geometry that PoolRecorder makes.
void CheckGeometry(const Recorder& g, const CallChecker& call) {
  call.Require(
      PoolRecorder(call.op(), g.input_shape(), {g.kernel_h, g.kernel_w}, {g.stride_h, g.stride_w},
                   {g.pad_top, g.pad_left, g.pad_bottom, g.pad_right}, {g.dilation_h, g.dilation_w},
                   g.ceil_mode) == g,
      "the geometry is not that of a pooling: ", g.ToString());
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
  if (saved) {  // recorded steps do not keep x then
    call.OptionalInput("x", geometry.input_shape(), dtype);
  } else {
    call.InputIf(mode == PoolMode::kMax, "x", geometry.input_shape(), dtype);
  }
  const Tensor& positions = call.InputIf(saved, "saved", geometry.output_shape(), kInt32);
  if (saved)
    for (const int32_t position : call.Values<int32_t>(positions))
      call.Require(position >= -1 && position < geometry.height * geometry.width, "saved has ",
                   position, ", no position in an image of ", geometry.height, " x ",
                   geometry.width);
  call.Output("dx", geometry.input_shape(), dtype);
}

}  // namespace singa
