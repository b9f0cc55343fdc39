// Convolution. Activations may keep the layout in which they come; filters lie as the primitive
// likes them best.

#include <initializer_list>
#include <iterator>
#include <utility>

#include "backend/onednn/engine.h"
#include "backend/onednn/register.h"
#include "model/operation/conv_spec.h"
#include "model/operation/kernel.h"

namespace singa::onednn {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward;
using BackwardX = dnnl::convolution_backward_data;
using BackwardW = dnnl::convolution_backward_weights;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

/// The geometry in oneDNN's words.
struct Geometry {
  explicit Geometry(const ConvSpec& spec)
      : r(spec.geometry),
        dtype(spec.dtype),
        x(r.input_shape()),
        w(r.weight_shape()),
        y(r.output_shape()),
        strides{r.stride_h, r.stride_w},
        dilations{r.dilation_h - 1, r.dilation_w - 1},  // oneDNN counts the gaps
        before{r.pad_top, r.pad_left},
        after{r.pad_bottom, r.pad_right} {
    if (r.group > 1)
      dnnl_w = {r.group, r.out_channels / r.group, r.in_channels / r.group, r.kernel_h, r.kernel_w};
    else
      dnnl_w = w;
  }
  /// Of x or y, which may come in a layout already.
  memory::desc Activation(const LayoutPtr& layout, const Shape& shape) const {
    const DnnlLayout* ours = AsDnnl(layout);
    return ours ? ours->desc() : AnyDesc(shape, dtype);
  }
  memory::desc Filter() const { return AnyDesc(dnnl_w, dtype); }
  memory::desc Bias() const { return r.bias ? PlainDesc({r.out_channels}, dtype) : memory::desc(); }
  Argument BindFilter(int id, const memory::desc& desc) const {
    return Bind(id, desc, w, dtype, r.group > 1 ? "goihw" : "oihw");
  }
  Argument BindBias(int id) const { return {id, PlainDesc({r.out_channels}, dtype), nullptr}; }

  const Recorder& r;
  DType dtype;
  Shape x, w, y, dnnl_w;
  memory::dims strides, dilations, before, after;
};

Forward::primitive_desc ForwardDesc(const Geometry& g, const memory::desc& x,
                                    const memory::desc& y) {
  return Forward::primitive_desc(Engine(), dnnl::prop_kind::forward_training, kAlgorithm, x,
                                 g.Filter(), g.Bias(), y, g.strides, g.dilations, g.before, g.after,
                                 ScratchpadAttr(), true);
}

/// Backward descriptors want to see a forward one; only its geometry matters.
Forward::primitive_desc Hint(const Geometry& g) {
  return ForwardDesc(g, AnyDesc(g.x, g.dtype), AnyDesc(g.y, g.dtype));
}

/// An attempt at a descriptor: activations in these layouts, null where oneDNN may choose.
struct Wish {
  LayoutPtr x, y;
};

/// The descriptor of the first wish that a kernel of the better kind fulfils; else of the first
/// that one of a matrix product does. A reorder costs less than such a kernel.
template <class PrimitiveDesc, class Make>
PrimitiveDesc Choose(std::initializer_list<Wish> wishes, const Make& make) {
  PrimitiveDesc second;
  for (const Wish& wish : wishes) {
    if (!wish.x && !wish.y && &wish != std::prev(wishes.end())) continue;  // the last one's
    PrimitiveDesc pd = make(wish);
    if (!SkipReference(&pd)) continue;
    if (!std::string_view(pd.impl_info_str()).starts_with("gemm")) return pd;
    if (!second) second = pd;
  }
  return second;
}

Forward::primitive_desc ChooseForward(const ConvSpec& spec) {
  const Geometry g(spec);
  return Choose<Forward::primitive_desc>(
      {{spec.x_layout, nullptr}, {nullptr, nullptr}}, [&](const Wish& wish) {
        return ForwardDesc(g, g.Activation(wish.x, g.x), AnyDesc(g.y, g.dtype));
      });
}

BackwardX::primitive_desc ChooseBackwardX(const ConvSpec& spec) {
  const Geometry g(spec);
  const Forward::primitive_desc hint = Hint(g);
  if (!hint) return {};
  return Choose<BackwardX::primitive_desc>(
      {{spec.x_layout, spec.dy_layout}, {nullptr, spec.dy_layout}, {nullptr, nullptr}},
      [&](const Wish& wish) {
        return BackwardX::primitive_desc(
            Engine(), kAlgorithm, g.Activation(wish.x, g.x), g.Filter(), g.Activation(wish.y, g.y),
            g.strides, g.dilations, g.before, g.after, hint, ScratchpadAttr(), true);
      });
}

BackwardW::primitive_desc ChooseBackwardW(const ConvSpec& spec) {
  const Geometry g(spec);
  const Forward::primitive_desc hint = Hint(g);
  if (!hint) return {};
  return Choose<BackwardW::primitive_desc>(
      {{spec.x_layout, spec.dy_layout}, {spec.x_layout, nullptr}, {nullptr, nullptr}},
      [&](const Wish& wish) {
        return BackwardW::primitive_desc(Engine(), kAlgorithm, g.Activation(wish.x, g.x),
                                         g.Filter(), g.Bias(), g.Activation(wish.y, g.y), g.strides,
                                         g.dilations, g.before, g.after, hint, ScratchpadAttr(),
                                         true);
      });
}

std::string Refuses(const ConvSpec& spec) {
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (spec.pass == ConvPass::kBackwardB) return "oneDNN sums the bias gradient only along with dW";
  return Guarded(spec.op(), [&]() -> std::string {
    bool found = false;
    if (spec.pass == ConvPass::kForward) found = bool(ChooseForward(spec));
    if (spec.pass == ConvPass::kBackwardX) found = bool(ChooseBackwardX(spec));
    if (spec.pass == ConvPass::kBackwardW) found = bool(ChooseBackwardW(spec));
    return found ? "" : "oneDNN has only its slow reference implementation for this geometry";
  });
}

PlanPtr MakeForward(const ConvSpec& spec) {
  const Geometry g(spec);
  const auto pd = ChooseForward(spec);
  std::vector<Argument> inputs = {Bind(DNNL_ARG_SRC, pd.src_desc(), g.x, g.dtype),
                                  g.BindFilter(DNNL_ARG_WEIGHTS, pd.weights_desc())};
  if (g.r.bias) inputs.push_back(g.BindBias(DNNL_ARG_BIAS));
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, Forward(pd), std::move(inputs),
      std::vector<Argument>{Bind(DNNL_ARG_DST, pd.dst_desc(), g.y, g.dtype)});
}

PlanPtr MakeBackwardX(const ConvSpec& spec) {
  const Geometry g(spec);
  const auto pd = ChooseBackwardX(spec);
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, BackwardX(pd),
      std::vector<Argument>{Bind(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y, g.dtype),
                            g.BindFilter(DNNL_ARG_WEIGHTS, pd.weights_desc())},
      std::vector<Argument>{Bind(DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), g.x, g.dtype)});
}

PlanPtr MakeBackwardW(const ConvSpec& spec) {
  const Geometry g(spec);
  const auto pd = ChooseBackwardW(spec);
  std::vector<Argument> outputs = {g.BindFilter(DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc())};
  if (g.r.bias) outputs.push_back(g.BindBias(DNNL_ARG_DIFF_BIAS));
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, BackwardW(pd),
      std::vector<Argument>{Bind(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y, g.dtype),
                            Bind(DNNL_ARG_SRC, pd.src_desc(), g.x, g.dtype)},
      std::move(outputs));
}

PlanPtr MakePlan(const ConvSpec& spec) {
  return Guarded(spec.op(), [&]() -> PlanPtr {
    switch (spec.pass) {
      case ConvPass::kForward:
        return MakeForward(spec);
      case ConvPass::kBackwardX:
        return MakeBackwardX(spec);
      default:
        return MakeBackwardW(spec);
    }
  });
}

}  // namespace

void RegisterConv() { Register<ConvSpec>("onednn", Refuses, MakePlan); }

}  // namespace singa::onednn
