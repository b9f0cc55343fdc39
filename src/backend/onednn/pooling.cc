// Average pooling by oneDNN, in the layout in which x comes. Maxima: max_pooling.h.

#include "backend/onednn/average_pooling.h"
#include "backend/onednn/engine.h"
#include "backend/onednn/max_pooling.h"
#include "backend/onednn/register.h"
#include "model/operation/kernel.h"
#include "model/operation/pooling_spec.h"
#include "model/operation/pooling_windows.h"

namespace singa::onednn {
namespace {

using dnnl::memory;
using Forward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

/// The geometry in oneDNN's words.
struct Geometry {
  template <class Spec>
  explicit Geometry(const Spec& spec)
      : algorithm(spec.mode == PoolMode::kAverageIncludePad
                      ? dnnl::algorithm::pooling_avg_include_padding
                      : dnnl::algorithm::pooling_avg_exclude_padding),
        dtype(spec.dtype),
        x(spec.geometry.input_shape()),
        y(spec.geometry.output_shape()) {
    const Recorder& r = spec.geometry;
    strides = {r.stride_h, r.stride_w};
    kernel = {r.kernel_h, r.kernel_w};
    dilations = {r.dilation_h - 1, r.dilation_w - 1};  // oneDNN counts the gaps
    before = {r.pad_top, r.pad_left};
    // What the windows that there are reach, with ceil_mode beyond the padding.
    const auto reach = [](int64_t windows, int64_t stride, int64_t kernel, int64_t dilation) {
      return (windows - 1) * stride + dilation * (kernel - 1) + 1;
    };
    after = {reach(r.conv_height, r.stride_h, r.kernel_h, r.dilation_h) - r.height - r.pad_top,
             reach(r.conv_width, r.stride_w, r.kernel_w, r.dilation_w) - r.width - r.pad_left};
  }

  dnnl::algorithm algorithm;
  DType dtype;
  Shape x, y;
  memory::dims strides, kernel, dilations, before, after;
};

Forward::primitive_desc ForwardDesc(const Geometry& g, const memory::desc& x,
                                    const memory::desc& y) {
  Forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_training, g.algorithm, x, y,
                             g.strides, g.kernel, g.dilations, g.before, g.after, ScratchpadAttr(),
                             true);
  return SkipReference(&pd) ? pd : Forward::primitive_desc();
}

Forward::primitive_desc ForwardDesc(const PoolingForwardSpec& spec) {
  const Geometry g(spec);
  return ForwardDesc(g, ToDesc(spec.x_layout, g.x, g.dtype), AnyDesc(g.y, g.dtype));
}

Backward::primitive_desc BackwardDesc(const PoolingBackwardSpec& spec) {
  const Geometry g(spec);
  // dx in x's layout; without x, in the one that goes with dy's.
  const bool from_dy = !spec.x_layout && spec.dy_layout;
  const memory::desc x = from_dy ? AnyDesc(g.x, g.dtype) : ToDesc(spec.x_layout, g.x, g.dtype);
  const memory::desc y = from_dy ? ToDesc(spec.dy_layout, g.y, g.dtype) : AnyDesc(g.y, g.dtype);
  const Forward::primitive_desc hint = ForwardDesc(g, x, y);
  if (!hint) return {};
  Backward::primitive_desc pd(Engine(), g.algorithm, x, y, g.strides, g.kernel, g.dilations,
                              g.before, g.after, hint, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Backward::primitive_desc();
}

/// oneDNN divides by the whole window, or by the elements of x in it if there is one.
template <class Spec>
std::string RefusesWindows(const Spec& spec) {
  const PoolWindows windows(spec.geometry, spec.mode);
  for (const WindowAxis* axis : {&windows.rows, &windows.columns}) {
    for (int64_t o = 0; o < axis->windows(); ++o) {
      if (axis->taps(o).size() == 0) return "some windows see nothing of the input";
      if (spec.mode == PoolMode::kAverageIncludePad && axis->divisor(o) != axis->kernel())
        return "some windows hang over the padding";
    }
  }
  return "";
}

template <class Spec>
std::string Refuses(const Spec& spec, const LayoutPtr& layout) {
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  if (layout && !AsDnnl(layout)) return "the layout is of another backend";
  return RefusesWindows(spec);
}

template <class Spec>
int ThreadsFor(const Spec& spec) {
  return ThreadsWorth(spec.geometry.input_shape().Count(), kElementsWorthThreads);
}

constexpr const char* kOnlyReference = "oneDNN has only its slow reference implementation";

std::string RefusesForward(const PoolingForwardSpec& spec) {
  if (spec.mode == PoolMode::kMax) return RefusesMax(spec);
  if (std::string reason = Refuses(spec, spec.x_layout); !reason.empty()) return reason;
  return Guarded(spec.op(), ThreadsFor(spec),
                 [&]() -> std::string { return ForwardDesc(spec) ? "" : kOnlyReference; });
}

/// What oneDNN itself says about backward.
std::string RefusesPrimitive(const PoolingBackwardSpec& spec) {
  const LayoutPtr& layout = spec.x_layout ? spec.x_layout : spec.dy_layout;
  if (std::string reason = Refuses(spec, layout); !reason.empty()) return reason;
  const Recorder& r = spec.geometry;
  if (spec.dtype == kBFloat16 && (r.kernel_h > r.stride_h || r.kernel_w > r.stride_w))
    return "oneDNN adds up overlapping windows in bfloat16";
  return Guarded(spec.op(), ThreadsFor(spec),
                 [&]() -> std::string { return BackwardDesc(spec) ? "" : kOnlyReference; });
}

std::string RefusesBackward(const PoolingBackwardSpec& spec) {
  if (spec.mode == PoolMode::kMax) return RefusesMax(spec);
  const std::string reason = RefusesPrimitive(spec);
  return reason.empty() || RefusesAverageGradient(spec).empty() ? "" : reason;
}

PlanPtr MakeForward(const PoolingForwardSpec& spec) {
  if (spec.mode == PoolMode::kMax) return MakeMax(spec);
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanPtr {
    const Geometry g(spec);
    const auto pd = ForwardDesc(spec);
    return std::make_shared<PrimitivePlan>(
        spec.op(), pd, Forward(pd),
        std::vector<Argument>{Bind(DNNL_ARG_SRC, pd.src_desc(), g.x, g.dtype)},
        std::vector<Argument>{Bind(DNNL_ARG_DST, pd.dst_desc(), g.y, g.dtype)});
  });
}

PlanPtr MakeBackward(const PoolingBackwardSpec& spec) {
  if (spec.mode == PoolMode::kMax) return MakeMax(spec);
  if (!RefusesPrimitive(spec).empty()) return MakeAverageGradient(spec);
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanPtr {
    const Geometry g(spec);
    const auto pd = BackwardDesc(spec);
    return std::make_shared<PrimitivePlan>(
        spec.op(), pd, Backward(pd),
        std::vector<Argument>{Bind(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y, g.dtype)},
        std::vector<Argument>{Bind(DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), g.x, g.dtype)});
  });
}

}  // namespace

void RegisterPooling() {
  Register<PoolingForwardSpec>("onednn", RefusesForward, MakeForward);
  Register<PoolingBackwardSpec>("onednn", RefusesBackward, MakeBackward);
}

}  // namespace singa::onednn
