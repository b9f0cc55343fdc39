// Average pooling by oneDNN, in x's layout, and maxima of channels-last bytes.

#include "backend/onednn/engine.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "model/operation/pooling/spec.h"
#include "model/operation/pooling/windows.h"

namespace singa::onednn {
namespace {

using dnnl::memory;
using Forward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

/// The geometry in oneDNN's terms.
struct Geometry {
  template <class Spec>
  explicit Geometry(const Spec& spec)
      : algorithm(spec.mode == PoolMode::kMax ? dnnl::algorithm::pooling_max
                  : spec.mode == PoolMode::kAverageIncludePad
                      ? dnnl::algorithm::pooling_avg_include_padding
                      : dnnl::algorithm::pooling_avg_exclude_padding),
        dtype(spec.dtype),
        x(spec.geometry.input_shape()),
        y(spec.geometry.output_shape()) {
    const Recorder& r = spec.geometry;
    strides = r.Along(&Recorder::Axis::stride);
    kernel = r.Along(&Recorder::Axis::kernel);
    dilations = r.Along(&Recorder::Axis::dilation);
    for (int64_t& dilation : dilations) --dilation;  // oneDNN counts the gaps
    before = r.Along(&Recorder::Axis::before);
    // The length that the windows span; with ceil_mode it may exceed the padding.
    for (const Recorder::Axis& axis : r.axes)
      after.push_back((axis.windows - 1) * axis.stride + axis.dilation * (axis.kernel - 1) + 1 -
                      axis.size - axis.before);
    after.erase(after.begin(), after.end() - r.spatial);
  }

  dnnl::algorithm algorithm;
  DType dtype;
  Shape x, y;
  memory::dims strides, kernel, dilations, before, after;
};

Forward::primitive_desc ForwardDesc(const Geometry& g, const memory::desc& x,
                                    const memory::desc& y) {
  const auto kind = g.algorithm == dnnl::algorithm::pooling_max
                        ? dnnl::prop_kind::forward_inference  // keeps no positions
                        : dnnl::prop_kind::forward_training;
  Forward::primitive_desc pd(Engine(), kind, g.algorithm, x, y, g.strides, g.kernel, g.dilations,
                             g.before, g.after, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Forward::primitive_desc();
}

Forward::primitive_desc ForwardDesc(const PoolingForwardSpec& spec) {
  const Geometry g(spec);
  return ForwardDesc(g, ToDesc(spec.x_layout, g.x, g.dtype), AnyDesc(g.y, g.dtype));
}

Backward::primitive_desc BackwardDesc(const PoolingBackwardSpec& spec) {
  const Geometry g(spec);
  // dx gets x's layout; without x, the layout that corresponds to dy's.
  const bool from_dy = !spec.x_layout && spec.dy_layout;
  const memory::desc x = from_dy ? AnyDesc(g.x, g.dtype) : ToDesc(spec.x_layout, g.x, g.dtype);
  const memory::desc y = from_dy ? ToDesc(spec.dy_layout, g.y, g.dtype) : AnyDesc(g.y, g.dtype);
  const Forward::primitive_desc hint = ForwardDesc(g, x, y);
  if (!hint) return {};
  Backward::primitive_desc pd(Engine(), g.algorithm, x, y, g.strides, g.kernel, g.dilations,
                              g.before, g.after, hint, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Backward::primitive_desc();
}

/// oneDNN divides by the whole window, or by the number of x's elements in it, which must not be 0.
template <class Spec>
std::string RefusesWindows(const Spec& spec) {
  const PoolWindows windows(spec.geometry, spec.mode);
  for (const WindowAxis* axis : {&windows.planes, &windows.rows, &windows.columns}) {
    for (int64_t o = 0; o < axis->windows(); ++o) {
      if (axis->taps(o).size() == 0) return "some windows see nothing of the input";
      if (spec.mode == PoolMode::kAverageIncludePad && axis->divisor(o) != axis->kernel())
        return "some windows hang over the padding";
    }
  }
  return "";
}

template <class Spec>
std::string RefusesAverage(const Spec& spec, const LayoutPtr& layout) {
  if (spec.mode == PoolMode::kMax) return "oneDNN keeps positions of maxima in a form of its own";
  if (spec.geometry.adaptive) return "oneDNN pools windows of one size";
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  if (layout && !AsBlocked(layout)) return "the layout is of another backend";
  return RefusesWindows(spec);
}

std::string Refuses(const PoolingForwardSpec& spec) {
  if (!spec.of_bytes()) return RefusesAverage(spec, spec.x_layout);
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  if (LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype) != LaneTag::kNhwc)
    return "its images of bytes are channels-last";
  return RefusesWindows(spec);
}

std::string Refuses(const PoolingBackwardSpec& spec) {
  const LayoutPtr& layout = spec.x_layout ? spec.x_layout : spec.dy_layout;
  if (std::string reason = RefusesAverage(spec, layout); !reason.empty()) return reason;
  for (const Recorder::Axis& axis : spec.geometry.axes)
    if (spec.dtype == kBFloat16 && axis.kernel > axis.stride)
      return "oneDNN adds up overlapping windows in bfloat16";
  return "";
}

template <class Spec>
int ThreadsFor(const Spec& spec) {
  return ThreadsWorth(spec.geometry.input_shape().Count(), kElementsWorthThreads);
}

PlanOrReason MakeForward(const PoolingForwardSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanOrReason {
    const Geometry g(spec);
    const auto pd = ForwardDesc(spec);
    if (!pd) return OnlyReference();
    return std::make_shared<PrimitivePlan>(
        spec.op(), pd, Forward(pd),
        std::vector<Argument>{Bind(DNNL_ARG_SRC, pd.src_desc(), g.x, g.dtype)},
        std::vector<Argument>{Bind(DNNL_ARG_DST, pd.dst_desc(), g.y, g.dtype)});
  });
}

PlanOrReason MakeBackward(const PoolingBackwardSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanOrReason {
    const Geometry g(spec);
    const auto pd = BackwardDesc(spec);
    if (!pd) return OnlyReference();
    return std::make_shared<PrimitivePlan>(
        spec.op(), pd, Backward(pd),
        std::vector<Argument>{Bind(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y, g.dtype)},
        std::vector<Argument>{Bind(DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), g.x, g.dtype)});
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<PoolingForwardSpec>(DeviceKind::kCpu, "onednn",
                               {.refuses = Refuses, .make = MakeForward});
  Register<PoolingBackwardSpec>(DeviceKind::kCpu, "onednn",
                                {.refuses = Refuses, .make = MakeBackward});
}

}  // namespace singa::onednn
