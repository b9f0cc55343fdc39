#include "singa/operation/quantized.h"

#include <algorithm>
#include <string>

#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/conv/geometry.h"
#include "model/operation/quantized/spec.h"

namespace singa {
namespace {

bool IsByte(DType dtype) { return dtype == kInt8 || dtype == kUInt8; }

/// A tensor of one element of this type, or none.
void CheckNumber(const char* op, const char* name, const Tensor& t, DType dtype, const Tensor& x) {
  if (t.empty()) return;
  CheckDType(op, name, t, dtype);
  Check(t.size() == 1, op, name, " must have one element, got ", t);
  CheckSameDevice(op, name, t, "x", x);
}

void CheckTypes(const char* op, const QuantizedFields& f) {
  Check<TypeError>(IsByte(f.x_type), op, "x must be int8 or uint8, got ", DTypeName(f.x_type));
  Check<TypeError>(f.is_rounded() || f.y_type == kInt32 || f.y_type == kFloat32, op,
                   "the result must be int8, uint8, int32 or float32, got ", DTypeName(f.y_type));
  Check(!f.has_y_zero || f.is_rounded(), op, "y_zero is for int8 and uint8 only");
  Check(f.has_scale() || (!f.has_bias && !f.relu && !f.gelu), op,
        "a result of int32 takes no bias, ReLU and GELU");
  Check(!f.relu || !f.gelu, op, "takes ReLU or GELU, not both");
  Check(!f.has_y_scale || f.is_rounded(), op, "y_scale is for int8 and uint8 only");
}

/// The checks of a product that Call does not make. Fills the fields.
void CheckProduct(const char* op, const Tensor& x, const Tensor& x_zero, const Tensor& scale,
                  const Tensor& b, const Tensor& y_zero, DType type, bool relu,
                  QuantizedFields* fields) {
  CheckNumber(op, "x_zero", x_zero, kInt32, x);
  CheckNumber(op, "y_zero", y_zero, kInt32, x);
  Check(type != kInt32 || scale.empty(), op, "a result of int32 takes no scale");
  fields->x_type = x.data_type();
  fields->y_type = type;
  fields->has_x_zero = !x_zero.empty();
  fields->has_bias = !b.empty();
  fields->has_y_zero = !y_zero.empty();
  fields->relu = relu;
  CheckTypes(op, *fields);
}

}  // namespace

Tensor QuantizedConv(const Tensor& x, const Tensor& W, const Tensor& x_zero, const Tensor& scale,
                     const Tensor& b, const Tensor& y_zero, const ConvHandle& handle, DType type,
                     bool relu) {
  auto spec = CurrentSpec<QuantizedConvSpec>();
  CheckGiven(spec.op(), "x", x);
  spec.geometry = GeometryFor(spec.op(), handle.recorder, x.shape());
  spec.geometry.bias = false;
  CheckProduct(spec.op(), x, x_zero, scale, b, y_zero, type, relu, &spec);
  return Call(spec, {x, W, x_zero, scale, b, y_zero, Tensor()}, {.zeros = x.size() == 0});
}

Tensor QuantizedMatMul(const Tensor& x, const Tensor& W, const Tensor& x_zero, const Tensor& scale,
                       const Tensor& b, const Tensor& y_zero, DType type, bool relu, bool gelu,
                       const Tensor& y_scale) {
  auto spec = CurrentSpec<QuantizedMatMulSpec>();
  CheckGiven(spec.op(), "x", x);
  CheckGiven(spec.op(), "W", W);
  Check(x.rank() >= 1 && W.rank() == 2 && W.shape()[0] == x.shape().back(), spec.op(),
        "x must be (..., k) and W (k, n), got ", x, " and ", W);
  Shape y_shape = x.shape();
  y_shape[y_shape.rank() - 1] = W.shape()[1];
  spec.rows = x.shape().Count(0, x.rank() - 1);
  spec.length = W.shape()[0];
  spec.outputs = W.shape()[1];
  CheckNumber(spec.op(), "y_scale", y_scale, kFloat32, x);
  spec.gelu = gelu;
  spec.has_y_scale = !y_scale.empty();
  CheckProduct(spec.op(), x, x_zero, scale, b, y_zero, type, relu, &spec);
  const Tensor rows = x.Reshape({spec.rows, spec.length});
  return Call(spec, {rows, W, x_zero, scale, b, y_zero, y_scale}, {.zeros = y_shape.Count() == 0})
      .Reshape(y_shape);
}

bool ComputesInt8(const DevicePtr& device) {
  // Any other convolution would do: whether the processor multiplies bytes decides.
  auto spec = CurrentSpec<QuantizedConvSpec>();
  spec.geometry = ConvRecorder(spec.op(), {1, 16, 8, 8}, {3, 3}, {1, 1}, {1, 1}, 16, false, {}, 1);
  const KernelList& kernels = KernelsOf<QuantizedConvSpec>(device->kind());
  return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
    return std::string_view(kernel.implementation) != kReference &&
           (!kernel.refuses || kernel.refuses(spec).empty());
  });
}

Tensor QuantizedSum(const std::vector<Tensor>& x, const std::vector<Tensor>& scales,
                    const std::vector<Tensor>& zeros, const Tensor& y_scale, const Tensor& y_zero,
                    DType type, bool relu) {
  QuantizedSumSpec spec;
  const char* op = spec.op();
  Check((x.size() == 1 || x.size() == 2) && scales.size() == x.size() && zeros.size() == x.size(),
        op, "takes one or two x with as many scales and zeros, got ", x.size(), ", ", scales.size(),
        " and ", zeros.size());
  Check<TypeError>(IsByte(type) || type == kFloat32, op,
                   "the result must be int8, uint8 or float32, got ", DTypeName(type));
  Check(IsByte(type) || (y_scale.empty() && y_zero.empty()), op,
        "y_scale and y_zero are for int8 and uint8 only");
  const Tensor& first = x[0];
  CheckGiven(op, "x", first);
  const bool channels_last =
      LaneTagOf(first.layout(), first.shape(), first.data_type()) == LaneTag::kNhwc;
  const auto layout_of = [&](DType dtype) {
    return channels_last ? LaneLayout(first.shape(), dtype, LaneTag::kNhwc) : nullptr;
  };
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < x.size(); ++i) {
    CheckGiven(op, "x", x[i]);
    const DType x_type = x[i].data_type();
    Check<TypeError>(IsByte(x_type) || x_type == kFloat32, op,
                     "x must be int8, uint8 or float32, got ", x[i]);
    CheckShapeIs(op, "x", x[i], first.shape());
    CheckSameDevice(op, "x", x[i], "the first one", first);
    CheckNumber(op, "a scale", scales[i], kFloat32, first);
    CheckNumber(op, "a zero point", zeros[i], kInt32, first);
    spec.x_types[i] = x_type;
    inputs.insert(inputs.end(), {x[i].ToLayout(layout_of(x_type)), scales[i], zeros[i]});
  }
  CheckNumber(op, "y_scale", y_scale, kFloat32, first);
  CheckNumber(op, "y_zero", y_zero, kInt32, first);
  inputs.insert(inputs.end(), {y_scale, y_zero});
  spec.count = static_cast<int>(x.size());
  spec.y_type = type;
  spec.relu = relu;
  const LayoutPtr layout = layout_of(type);
  const DevicePtr device = first.device();
  const Tensor y = layout ? Tensor(device, layout) : Tensor(first.shape(), device, type);
  Run(spec, device, FindPlan(*device, spec), inputs, {{y}});
  return y;
}

std::vector<Tensor> QuantizedFields::MagnitudesOf(const Shape& y) const {
  return {is_rounded() ? Full(y, 1, nullptr, kInt32) : Tensor()};
}

void QuantizedFields::CheckAs(const CallChecker& call, const Shape& x, const Shape& W,
                              const Shape& y) const {
  call.RequireShape(x);
  call.RequireShape(W);
  call.RequireShape(y);
  call.Require(x.Count() > 0 || y.Count() == 0, "x has no elements, y has ", y.Count());
  CheckTypes(call.op(), *this);
  call.RequireThreads(threads);
}

void QuantizedConvSpec::CheckFields(const CallChecker& call) const {
  const Recorder& g = geometry;
  call.Require(WithInput(op(), g, g.input_shape()) == g && g.batchsize >= 1 && !g.bias &&
                   !g.ceil_mode && !g.adaptive,
               "the geometry is not that of a convolution: ", g.ToString());
  CheckAs(call, g.input_shape(), g.weight_shape(), g.output_shape());
}

void QuantizedMatMulSpec::CheckFields(const CallChecker& call) const {
  CheckAs(call, {rows, length}, {length, outputs}, {rows, outputs});
}

void QuantizedSumSpec::CheckCall(CallChecker& call) const {
  call.Require(count == 1 || count == 2, "takes one or two x, got ", count);
  call.Require(IsByte(y_type) || y_type == kFloat32, "y must be int8, uint8 or float32, got ",
               DTypeName(y_type));
  const Shape shape = call.ShapeOfInput(0);
  const auto number = [&](const char* name, DType dtype) {
    call.Input(name, {1}, dtype, {.optional = true, .flat = true});
  };
  for (int i = 0; i < count; ++i) {
    const DType dtype = x_types[i];
    call.Require(IsByte(dtype) || dtype == kFloat32, "x must be int8, uint8 or float32, got ",
                 DTypeName(dtype));
    call.Input("x", shape, dtype);
    number("scale", kFloat32);
    number("zero", kInt32);
  }
  number("y_scale", kFloat32);
  number("y_zero", kInt32);
  call.Output("y", shape, y_type);
  call.KeepsPlaces();
  const auto layout_like = [&](const LayoutPtr& layout, DType dtype) {
    return layout ? LaneLayout(shape, dtype, LaneTag::kNhwc) : nullptr;
  };
  const LayoutPtr& first = call.input_place(0).layout;
  for (int i = 0; i < count; ++i)
    call.Require(SameLayout(call.input_place(3 * static_cast<size_t>(i)).layout,
                            layout_like(first, x_types[i])),
                 "the arguments lie in different orders");
  call.Require(SameLayout(call.output_place(0).layout, layout_like(first, y_type)),
               "the result lies in another order than the arguments");
}

}  // namespace singa
