// Convolutions and matrix products of bytes. oneDNN's kernels for them read images channels-last
// and sum in int32. Without VNNI they add pairs of products in 16 bits, which saturates.

#include <algorithm>
#include <utility>

#include "backend/onednn/conv_geometry.h"
#include "backend/onednn/defects.h"
#include "backend/onednn/engine.h"
#include "backend/onednn/packed_weights.h"
#include "model/dispatch/kernel.h"
#include "model/operation/quantized/spec.h"

namespace singa::onednn {
namespace {

using dnnl::memory;

bool HasVnni() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
    case dnnl::cpu_isa::avx:
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
    case dnnl::cpu_isa::avx2_vnni_2:
    case dnnl::cpu_isa::avx512_core:
      return false;
    default:
      return true;
  }
}

std::string RefusesBytes() {
  return HasVnni() ? "" : "this CPU has no AVX-512 VNNI, without which sums of bytes saturate";
}

/// `scales`: the axes of W along which there are scales, as a mask.
dnnl::primitive_attr Attributes(const QuantizedFields& fields, int scales) {
  dnnl::primitive_attr attr = ScratchpadAttr();
  if (fields.has_x_zero) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  if (fields.has_scale()) attr.set_scales_mask(DNNL_ARG_WEIGHTS, scales);
  if (fields.has_y_zero) attr.set_zero_points_mask(DNNL_ARG_DST, 0);
  if (fields.has_y_scale) attr.set_scales_mask(DNNL_ARG_DST, 0);
  dnnl::post_ops after;
  if (fields.relu) after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
  if (fields.gelu) after.append_eltwise(dnnl::algorithm::eltwise_gelu_erf, 0, 0);
  attr.set_post_ops(after);
  return attr;
}

Argument BindWeights(const memory::desc& packed, const memory::desc& plain, const Shape& shape,
                     const char* letters) {
  LayoutPtr layout;
  if (packed != plain) layout = std::make_shared<PackedWeights>(shape, plain, packed, letters);
  return {DNNL_ARG_WEIGHTS, packed, layout};
}

/// The plan of a primitive. `bias` is its descriptor, which may be empty.
template <class Primitive>
PlanPtr PlanOf(const QuantizedFields& fields, const char* op,
               const typename Primitive::primitive_desc& pd, Argument x, Argument W, Argument y,
               const memory::desc& bias, int64_t outputs) {
  const auto vector = [](int64_t length, memory::data_type type) {
    return memory::desc({length}, type, memory::format_tag::a);
  };
  const memory::desc zero = vector(1, memory::data_type::s32);
  std::vector<Argument> inputs = {std::move(x), std::move(W)};
  if (fields.has_x_zero)
    inputs.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, zero, nullptr});
  if (fields.has_scale())
    inputs.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
                      vector(outputs, memory::data_type::f32), nullptr});
  if (fields.has_bias) inputs.push_back({DNNL_ARG_BIAS, bias, nullptr});
  if (fields.has_y_zero)
    inputs.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, zero, nullptr});
  if (fields.has_y_scale)
    inputs.push_back(
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, vector(1, memory::data_type::f32), nullptr});
  return std::make_shared<PrimitivePlan>(op, pd, Primitive(pd), std::move(inputs),
                                         std::vector<Argument>{std::move(y)});
}

// Convolution -------------------------------------------------------------------------------------

Argument ChannelsLast(int id, const Shape& shape, DType dtype) {
  constexpr memory::format_tag kTags[] = {memory::format_tag::nwc, memory::format_tag::nhwc,
                                          memory::format_tag::ndhwc};
  return Bind(id, memory::desc(Dims(shape), DataTypeOf(dtype), kTags[shape.rank() - 3]), shape,
              dtype);
}

std::string RefusesConv(const QuantizedConvSpec& spec) {
  if (spec.plain) return "its images are channels-last";
  return RefusesBytes();
}

PlanOrReason MakeConv(const QuantizedConvSpec& spec) {
  const int threads = ThreadsWorth(spec.multiply_adds(), kMultiplyAddsWorthThreads);
  return Guarded(spec.op(), threads, [&]() -> PlanOrReason {
    ConvSpec weights;  // oneDNN's terms for the geometry, and for W
    weights.geometry = spec.geometry;
    weights.dtype = kInt8;
    const ConvGeometry g(weights);
    if (g.flat) return PlanOrReason::None("oneDNN has no such convolutions of one axis");
    const Argument x = ChannelsLast(DNNL_ARG_SRC, g.x, spec.x_type);
    const Argument y = ChannelsLast(DNNL_ARG_DST, g.y, spec.y_type);
    const memory::desc bias = spec.has_bias ? PlainDesc(g.b, kFloat32) : memory::desc();
    dnnl::convolution_forward::primitive_desc pd(
        Engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, x.desc,
        g.any_filter, bias, y.desc, g.strides, g.dilations, g.before, g.after,
        Attributes(spec, g.grouped ? 3 : 1), true);
    const Defect* defect = nullptr;
    do {
      if (!SkipReference(&pd)) return OnlyReference();
      defect = DefectOfBytes(pd.impl_info_str(), spec.geometry);
    } while (defect && pd.next_impl());
    if (defect) return PlanOrReason::None(defect->what);
    return PlanOf<dnnl::convolution_forward>(
        spec, spec.op(), pd, x,
        BindWeights(pd.weights_desc(), g.plain_filter, g.w, g.filter_letters()), y, bias,
        spec.geometry.out_channels);
  });
}

// Matrix product ----------------------------------------------------------------------------------

std::string RefusesMatMul(const QuantizedMatMulSpec& spec) {
  if (spec.length == 0) return "sums of nothing";
  return RefusesBytes();
}

PlanOrReason MakeMatMul(const QuantizedMatMulSpec& spec) {
  const int threads = std::max(ThreadsWorth(spec.multiply_adds(), kMultiplyAddsWorthThreads),
                               ThreadsWorth(spec.length * spec.outputs, kElementsWorthThreads));
  return Guarded(spec.op(), threads, [&]() -> PlanOrReason {
    const Shape w_shape{spec.length, spec.outputs};
    const memory::desc x = PlainDesc({spec.rows, spec.length}, spec.x_type);
    const memory::desc y = PlainDesc({spec.rows, spec.outputs}, spec.y_type);
    const memory::desc bias =
        spec.has_bias ? PlainDesc({1, spec.outputs}, kFloat32) : memory::desc();
    dnnl::matmul::primitive_desc pd(Engine(), x, AnyDesc(w_shape, kInt8), bias, y,
                                    Attributes(spec, 1 << 1), true);
    if (!SkipReference(&pd)) return OnlyReference();
    return PlanOf<dnnl::matmul>(
        spec, spec.op(), pd, {DNNL_ARG_SRC, x, nullptr},
        BindWeights(pd.weights_desc(), PlainDesc(w_shape, kInt8), w_shape, "io"),
        {DNNL_ARG_DST, y, nullptr}, bias, spec.outputs);
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<QuantizedConvSpec>(DeviceKind::kCpu, "onednn",
                              {.refuses = RefusesConv, .make = MakeConv});
  Register<QuantizedMatMulSpec>(DeviceKind::kCpu, "onednn",
                                {.refuses = RefusesMatMul, .make = MakeMatMul});
}

}  // namespace singa::onednn
