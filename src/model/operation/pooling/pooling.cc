#include "singa/operation/pooling.h"

#include <limits>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/pooling/spec.h"

namespace singa {
namespace {

bool IsByte(DType dtype) { return dtype == kInt8 || dtype == kUInt8; }

const Shape& InputShape(const char* op, const Tensor& x) {
  CheckFloat(op, "x", x);
  return x.shape();
}
/// The same for an x that may be of bytes, which have maxima on the CPU.
const Shape& InputShape(const char* op, const Tensor& x, bool is_max) {
  CheckGiven(op, "x", x);
  const bool bytes = IsByte(x.data_type()) && x.device()->kind() == DeviceKind::kCpu;
  return is_max && bytes ? x.shape() : InputShape(op, x);
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
  return CallForAll(PoolingForwardSpec{{geometry, mode, x.data_type(), x.layout()}, save}, {x});
}

/// An average does not need x: it only has its layout from x.
Tensor Backward(const char* op, const Recorder& geometry, PoolMode mode, const Tensor& dy,
                const Tensor& x, const Tensor& saved) {
  PoolingBackwardSpec spec{{geometry, mode, dy.data_type()}, false, dy.layout()};
  spec.saved = mode == PoolMode::kMax && !saved.empty();
  if (!x.empty()) {
    CheckShapeIs(op, "x", x, geometry.input_shape());
    CheckDType(op, "x", x, dy.data_type());
    CheckSameDevice(op, "x", x, "dy", dy);
    spec.x_layout = x.layout();
  }
  return Call(spec, {dy, x, saved}, {.op = op});
}

}  // namespace

PoolingHandle::PoolingHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                             const std::vector<int64_t>& stride,
                             const std::vector<int64_t>& padding, bool is_max, bool ceil_mode,
                             bool count_include_pad, const std::vector<int64_t>& dilation)
    : recorder(PoolRecorder("Pooling", InputShape("Pooling", input, is_max), kernel, stride,
                            padding, dilation, ceil_mode)),
      mode(is_max              ? PoolMode::kMax
           : count_include_pad ? PoolMode::kAverageIncludePad
                               : PoolMode::kAverageExcludePad) {}

std::vector<Tensor> PoolingForward(const PoolingHandle& handle, const Tensor& x, bool training) {
  const char* op = "PoolingForward";
  CheckMode(op, handle.mode);
  const bool is_max = handle.mode == PoolMode::kMax;
  const Recorder geometry = GeometryFor(op, handle.recorder, InputShape(op, x, is_max));
  const bool save = training && is_max && !IsByte(x.data_type());
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
  CheckShapeIs(op, "dy", dy, geometry.output_shape());
  if (!y.empty()) CheckShapeIs(op, "y", y, geometry.output_shape());
  return Backward(op, geometry, handle.mode, dy, x, saved);
}

Tensor GlobalAveragePoolForward(const Tensor& x) {
  const char* op = "GlobalAveragePoolForward";
  const Recorder geometry = GlobalRecorder(op, InputShape(op, x));
  return Forward(geometry, PoolMode::kAverageExcludePad, x, false)[0];
}

Tensor GlobalAveragePoolBackward(const Tensor& dy, const Shape& x_shape, const Tensor& x) {
  const char* op = "GlobalAveragePoolBackward";
  CheckFloat(op, "dy", dy);
  return Backward(op, GlobalRecorder(op, x_shape), PoolMode::kAverageExcludePad, dy, x, {});
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
  return Backward(op, geometry, AdaptiveMode(is_max), dy, x, saved);
}

namespace {

/// Fields of both directions. The geometry is one that PoolRecorder or AdaptivePoolRecorder makes.
/// `bytes`: whether x may be of int8 or uint8.
void CheckPooling(const PoolingFields& fields, bool saves, bool bytes, const CallChecker& call) {
  const Recorder& g = fields.geometry;
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
  if (!bytes || !fields.of_bytes()) call.RequireFloat("x", fields.dtype);
  call.Require(!saves || fields.mode == PoolMode::kMax, "only a maximum saves positions");
  if (saves) CheckPositions(call.op(), g);
}

}  // namespace

void PoolingForwardSpec::CheckFields(const CallChecker& call) const {
  CheckPooling(*this, save, mode == PoolMode::kMax && !save && !geometry.adaptive, call);
}
void PoolingBackwardSpec::CheckFields(const CallChecker& call) const {
  CheckPooling(*this, saved, false, call);
}
void PoolingBackwardSpec::CheckValues(const CallChecker& call) const {
  if (!saved) return;
  for (const int32_t position : call.Values<int32_t>(call.input(2)))
    call.Require(position >= -1 && position < geometry.pixels(), "saved has ", position,
                 ", no position in an image of ", List{geometry.Along(&Recorder::Axis::size)});
}

}  // namespace singa
