// Convolution and transposed convolution. Activations may keep the layout in which they come;
// filters lie as the primitive likes them best. What is added to a convolution lies in y before:
// the primitive sums into it. ReLU is a pass of our own (rectify.h).

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "backend/onednn/bias_gradient.h"
#include "backend/onednn/channel_lanes.h"
#include "backend/onednn/register.h"
#include "backend/onednn/tiles.h"
#include "backend/onednn/winograd.h"
#include "core/parallel.h"
#include "model/operation/conv_spec.h"
#include "model/operation/kernel.h"

namespace singa::onednn {
namespace {

using dnnl::memory;

/// oneDNN's primitives for a Spec.
template <class Spec>
struct Primitives;

template <>
struct Primitives<ConvSpec> {
  using Forward = dnnl::convolution_forward;
  using BackwardX = dnnl::convolution_backward_data;
  using BackwardW = dnnl::convolution_backward_weights;
  static constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
};

template <>
struct Primitives<ConvTransposeSpec> {
  using Forward = dnnl::deconvolution_forward;
  using BackwardX = dnnl::deconvolution_backward_data;
  using BackwardW = dnnl::deconvolution_backward_weights;
  static constexpr auto kAlgorithm = dnnl::algorithm::deconvolution_direct;
};

/// The geometry in oneDNN's words.
struct Geometry {
  DType dtype;
  Shape x, w, y, b;
  bool bias, grouped;
  memory::dims strides, dilations, before, after;
  /// The filter in oneDNN's axes, ([group,] out / group, in / group, kh, kw), in any layout, and as
  /// it lies row-major in ours.
  memory::desc any_filter, plain_filter;

  explicit Geometry(const ConvSpec& spec) : Geometry(spec, spec.geometry) {
    const Recorder& r = spec.geometry;
    x = r.input_shape();
    y = r.output_shape();
    b = {r.out_channels};
    const int64_t out = r.out_channels / r.group, in = r.in_channels / r.group;
    const int64_t kernel = r.kernel_h * r.kernel_w;
    SetFilter(r, {r.group, out, in}, {out * in * kernel, in * kernel, kernel});
  }
  /// The recorder is that of the convolution that turns y into x; the filter's first axis is ours
  /// for the input.
  explicit Geometry(const ConvTransposeSpec& spec) : Geometry(spec, spec.geometry) {
    const Recorder& r = spec.geometry;
    x = r.output_shape();
    y = r.input_shape();
    b = {r.in_channels};
    const int64_t out = r.in_channels / r.group, in = r.out_channels / r.group;
    const int64_t kernel = r.kernel_h * r.kernel_w;
    SetFilter(r, {r.group, out, in}, {in * out * kernel, kernel, out * kernel});
  }

  memory::desc Bias() const { return bias ? PlainDesc(b, dtype) : memory::desc(); }
  Argument BindFilter(int id, const memory::desc& desc) const {
    return Bind(id, desc, w, dtype, grouped ? "goihw" : "oihw", &plain_filter);
  }
  Argument BindBias(int id) const { return {id, PlainDesc(b, dtype), nullptr}; }

 private:
  Geometry(const ConvSpec& spec, const Recorder& r)
      : dtype(spec.dtype),
        w(r.weight_shape()),
        bias(r.bias),
        grouped(r.group > 1),
        strides{r.stride_h, r.stride_w},
        dilations{r.dilation_h - 1, r.dilation_w - 1},  // oneDNN counts the gaps
        before{r.pad_top, r.pad_left},
        after{r.pad_bottom, r.pad_right} {}

  void SetFilter(const Recorder& r, memory::dims dims, memory::dims places) {
    dims.insert(dims.end(), {r.kernel_h, r.kernel_w});
    places.insert(places.end(), {r.kernel_w, 1});
    if (!grouped) {
      dims.erase(dims.begin());
      places.erase(places.begin());
    }
    any_filter = memory::desc(dims, DataTypeOf(dtype), memory::format_tag::any);
    plain_filter = memory::desc(dims, DataTypeOf(dtype), places);
  }
};

/// An attempt at a descriptor: activations in these layouts, null where oneDNN may choose.
struct Wish {
  LayoutPtr x, y;
};

/// What Wishes() ask for beyond the layouts that are there: channels side by side, all or in
/// blocks.
std::vector<LayoutPtr> LaneLayouts(const ConvSpec& spec, const Shape& shape) {
  std::vector<LayoutPtr> layouts;
  if (spec.plain) return layouts;
  for (const LaneTag tag : {LaneTag::nhwc, LaneTag::nChw8c, LaneTag::nChw16c})
    layouts.push_back(LaneLayout(shape, spec.dtype, tag));
  return layouts;
}

memory::desc Activation(const ConvSpec& spec, const LayoutPtr& layout, const Shape& shape) {
  if (spec.plain) return PlainDesc(shape, spec.dtype);
  const DnnlLayout* ours = AsDnnl(layout);
  return ours ? ours->desc() : AnyDesc(shape, spec.dtype);
}

/// Channels-last for images whose last block of channels would be largely empty: blocks of 16 would
/// make 32 channels out of 20, in memory and in work. Else null, and oneDNN's own choice is better.
LayoutPtr NarrowLayout(const ConvSpec& spec, const Shape& shape) {
  const int64_t lanes = UsesAvx512() ? 16 : 8;
  const int64_t padded = RoundUp(shape[1], lanes);
  if (spec.plain || padded * 100 <= shape[1] * 115) return nullptr;
  return LaneLayout(shape, spec.dtype, LaneTag::nhwc);
}

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

/// y of a convolution already holds what is added.
dnnl::primitive_attr ForwardAttr(const ConvSpec& spec) {
  dnnl::post_ops after;
  if (spec.has_add) after.append_sum();
  dnnl::primitive_attr attr = ScratchpadAttr();
  attr.set_post_ops(after);
  return attr;
}

template <class Spec>
using ForwardHint = typename Primitives<Spec>::Forward::primitive_desc;

template <class Spec>
auto ForwardDesc(const Spec& spec, const Geometry& g, const memory::desc& x,
                 const memory::desc& y) {
  return typename Primitives<Spec>::Forward::primitive_desc(
      Engine(), dnnl::prop_kind::forward_training, Primitives<Spec>::kAlgorithm, x, g.any_filter,
      g.Bias(), y, g.strides, g.dilations, g.before, g.after, ForwardAttr(spec), true);
}

template <class Spec>
auto DescribeForward(const Spec& spec, const Geometry& g, const Wish& wish,
                     const ForwardHint<Spec>&) {
  return ForwardDesc(spec, g, Activation(spec, wish.x, g.x), Activation(spec, wish.y, g.y));
}

template <class Spec>
auto ChooseForward(const Spec& spec, const Geometry& g) {
  const LayoutPtr narrow = NarrowLayout(spec, g.y);
  return Choose<typename Primitives<Spec>::Forward::primitive_desc>(
      {{spec.x_layout, narrow}, {spec.x_layout, nullptr}, {nullptr, nullptr}},
      [&](const Wish& wish) { return DescribeForward(spec, g, wish, {}); });
}

/// Backward descriptors want to see a forward one, of which only the geometry matters, and look at
/// it again in next_impl.
template <class Spec>
ForwardHint<Spec> Hint(const Spec& spec, const Geometry& g) {
  return ForwardDesc(spec, g, AnyDesc(g.x, g.dtype), AnyDesc(g.y, g.dtype));
}

template <class Spec>
auto DescribeBackwardX(const Spec& spec, const Geometry& g, const Wish& wish,
                       const ForwardHint<Spec>& hint) {
  using Desc = typename Primitives<Spec>::BackwardX::primitive_desc;
  if (!hint) return Desc();
  return Desc(Engine(), Primitives<Spec>::kAlgorithm, Activation(spec, wish.x, g.x), g.any_filter,
              Activation(spec, wish.y, g.y), g.strides, g.dilations, g.before, g.after, hint,
              ScratchpadAttr(), true);
}

template <class Spec>
auto ChooseBackwardX(const Spec& spec, const Geometry& g) {
  const auto hint = Hint(spec, g);
  return Choose<typename Primitives<Spec>::BackwardX::primitive_desc>(
      {{spec.x_layout, spec.dy_layout}, {nullptr, spec.dy_layout}, {nullptr, nullptr}},
      [&](const Wish& wish) { return DescribeBackwardX(spec, g, wish, hint); });
}

template <class Spec>
auto DescribeBackwardW(const Spec& spec, const Geometry& g, const Wish& wish,
                       const ForwardHint<Spec>& hint) {
  using Desc = typename Primitives<Spec>::BackwardW::primitive_desc;
  if (!hint) return Desc();
  return Desc(Engine(), Primitives<Spec>::kAlgorithm, Activation(spec, wish.x, g.x), g.any_filter,
              g.Bias(), Activation(spec, wish.y, g.y), g.strides, g.dilations, g.before, g.after,
              hint, ScratchpadAttr(), true);
}

template <class Spec>
auto ChooseBackwardW(const Spec& spec, const Geometry& g) {
  const auto hint = Hint(spec, g);
  return Choose<typename Primitives<Spec>::BackwardW::primitive_desc>(
      {{spec.x_layout, spec.dy_layout}, {spec.x_layout, nullptr}, {nullptr, nullptr}},
      [&](const Wish& wish) { return DescribeBackwardW(spec, g, wish, hint); });
}

/// oneDNN 3.2 transposes a bfloat16 image into one part for each step of the stride. Where the
/// image is narrower than the stride some parts get nothing, and it multiplies what lay in them
/// before.
bool ReadsUnwrittenMemory(ConvPass pass, DType dtype, const Recorder& geometry) {
  return pass == ConvPass::kBackwardW && dtype == kBFloat16 && geometry.width < geometry.stride_w;
}

int ThreadsFor(const ConvSpec& spec) {
  return ThreadsWorth(spec.geometry.output_shape().Count() * spec.geometry.col_height,
                      kMultiplyAddsWorthThreads);
}

Shape ShapeOfDy(const ConvSpec& spec) { return spec.geometry.output_shape(); }
Shape ShapeOfDy(const ConvTransposeSpec& spec) { return spec.geometry.input_shape(); }

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (spec.pass == ConvPass::kBackwardB)
    return RefusesBiasGradient(spec.dy_layout, ShapeOfDy(spec), spec.dtype);
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (ReadsUnwrittenMemory(spec.pass, spec.dtype, spec.geometry))
    return "oneDNN's bfloat16 weight gradient is wrong for images narrower than the stride";
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> std::string {
    const Geometry g(spec);
    bool found = false;
    if (spec.pass == ConvPass::kForward) found = bool(ChooseForward(spec, g));
    if (spec.pass == ConvPass::kBackwardX) found = bool(ChooseBackwardX(spec, g));
    if (spec.pass == ConvPass::kBackwardW) found = bool(ChooseBackwardW(spec, g));
    return found ? "" : "oneDNN has only its slow reference implementation for this geometry";
  });
}

/// Sums into y, which takes over the memory of what is added, or a copy of it.
class SumPlan final : public PrimitivePlan {
 public:
  template <class... Rest>
  SumPlan(size_t add, Rest&&... rest) : PrimitivePlan(std::forward<Rest>(rest)...), add_(add) {}

  std::string Describe() const override { return PrimitivePlan::Describe() + " + add"; }
  LayoutPtr input_layout(size_t i) const override {
    return i == add_ ? output_layout(0) : PrimitivePlan::input_layout(i);
  }
  int inplace_input(size_t i) const override { return i == 0 ? static_cast<int>(add_) : -1; }

  void Run(const Execution& execution) const override {
    const char* add = execution.in<char>(add_);
    char* y = execution.out<char>(0);
    if (add != y) {
      const LayoutPtr& layout = execution.outputs[0].layout();
      const size_t bytes = layout ? layout->bytes() : execution.outputs[0].bytes();
      ParallelFor(static_cast<int64_t>(bytes), kParallelGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(y + begin, add + begin, static_cast<size_t>(end - begin));
      });
    }
    PrimitivePlan::Run(execution);
  }

 private:
  size_t add_;
};

template <class Spec>
PlanPtr PlanOf(const Spec& spec, const Geometry& g,
               const typename Primitives<Spec>::Forward::primitive_desc& pd) {
  std::vector<Argument> inputs = {Bind(DNNL_ARG_SRC, pd.src_desc(), g.x, g.dtype),
                                  g.BindFilter(DNNL_ARG_WEIGHTS, pd.weights_desc())};
  if (g.bias) inputs.push_back(g.BindBias(DNNL_ARG_BIAS));
  std::vector<Argument> outputs = {Bind(DNNL_ARG_DST, pd.dst_desc(), g.y, g.dtype)};
  const typename Primitives<Spec>::Forward primitive(pd);
  std::shared_ptr<PrimitivePlan> plan;
  if (spec.has_add)
    plan = std::make_shared<SumPlan>(spec.add_input(), spec.op(), pd, primitive, std::move(inputs),
                                     std::move(outputs));
  else
    plan = std::make_shared<PrimitivePlan>(spec.op(), pd, primitive, std::move(inputs),
                                           std::move(outputs));
  if (spec.relu) plan->AddRelu();
  return plan;
}

template <class Spec>
PlanPtr PlanOf(const Spec& spec, const Geometry& g,
               const typename Primitives<Spec>::BackwardX::primitive_desc& pd) {
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, typename Primitives<Spec>::BackwardX(pd),
      std::vector<Argument>{Bind(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y, g.dtype),
                            g.BindFilter(DNNL_ARG_WEIGHTS, pd.weights_desc())},
      std::vector<Argument>{Bind(DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), g.x, g.dtype)});
}

template <class Spec>
PlanPtr PlanOf(const Spec& spec, const Geometry& g,
               const typename Primitives<Spec>::BackwardW::primitive_desc& pd) {
  std::vector<Argument> outputs = {g.BindFilter(DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc())};
  if (g.bias) outputs.push_back(g.BindBias(DNNL_ARG_DIFF_BIAS));
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, typename Primitives<Spec>::BackwardW(pd),
      std::vector<Argument>{Bind(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y, g.dtype),
                            Bind(DNNL_ARG_SRC, pd.src_desc(), g.x, g.dtype)},
      std::move(outputs));
}

template <class Spec>
PlanPtr MakePlan(const Spec& spec) {
  if (spec.pass == ConvPass::kBackwardB)
    return MakeBiasGradient(spec.dy_layout, ShapeOfDy(spec), spec.dtype);
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanPtr {
    const Geometry g(spec);
    switch (spec.pass) {
      case ConvPass::kForward:
        return PlanOf(spec, g, ChooseForward(spec, g));
      case ConvPass::kBackwardX:
        return PlanOf(spec, g, ChooseBackwardX(spec, g));
      default:
        return PlanOf(spec, g, ChooseBackwardW(spec, g));
    }
  });
}

/// Pairs of layouts to try: as they come, as oneDNN likes them, and every one of our own.
std::vector<Wish> Wishes(const ConvSpec& spec, const Geometry& g) {
  const std::vector<LayoutPtr> x = LaneLayouts(spec, g.x), y = LaneLayouts(spec, g.y);
  std::vector<Wish> wishes = {{spec.x_layout, spec.dy_layout}, {nullptr, nullptr}};
  for (size_t i = 0; i < x.size(); ++i) {
    wishes.push_back({x[i], y[i]});
    wishes.push_back({nullptr, y[i]});  // the first layer's x stays plain
  }
  return wishes;
}

/// oneDNN offers them too, at a quarter of the speed.
bool IsForOlderCpus(std::string_view implementation) {
  return implementation.find("sse41") != std::string_view::npos && __builtin_cpu_supports("avx2") &&
         dnnl::get_effective_cpu_isa() != dnnl::cpu_isa::sse41;
}

/// MakePlan's own way, and then all implementations for all wishes, each once. Names say
/// implementation and images: "onednn jit:avx2 nhwc nChw8c".
template <class Spec, class Desc>
std::vector<Candidate> List(const Spec& spec, const Desc& first,
                            Desc (*describe)(const Spec&, const Geometry&, const Wish&,
                                             const ForwardHint<Spec>&),
                            const std::array<int, 2>& images) {
  const Geometry g(spec);
  const auto hint = Hint(spec, g);
  const auto name_of = [&](const Desc& pd) {
    const auto layout = [&](int id, const Shape& shape) {
      const memory::desc desc = pd.query_md(dnnl::query::exec_arg_md, id);
      return " " + LayoutName(FromDesc(desc, shape, g.dtype));
    };
    return std::string("onednn ") + pd.impl_info_str() + layout(images[0], g.x) +
           layout(images[1], g.y);
  };
  std::vector<Candidate> candidates = {{name_of(first), [spec] { return MakePlan(spec); }}};
  for (const Wish& wish : Wishes(spec, g)) {
    Desc pd = describe(spec, g, wish, hint);
    for (int skipped = 0; pd; ++skipped) {
      const std::string name = name_of(pd);
      const bool known = std::any_of(candidates.begin(), candidates.end(),
                                     [&](const Candidate& other) { return other.name == name; });
      if (!known && !IsReference(pd.impl_info_str()) && !IsForOlderCpus(pd.impl_info_str()))
        candidates.push_back({name, [=] {
                                return Guarded(spec.op(), ThreadsFor(spec), [&] {
                                  const Geometry own(spec);
                                  const auto own_hint = Hint(spec, own);
                                  Desc same = describe(spec, own, wish, own_hint);
                                  for (int i = 0; i < skipped; ++i) same.next_impl();
                                  return PlanOf(spec, own, same);
                                });
                              }});
      if (!pd.next_impl()) break;
    }
  }
  return candidates;
}

template <class Spec>
std::vector<Candidate> Candidates(const Spec& spec) {
  if (spec.pass == ConvPass::kBackwardB) return {{"onednn", [spec] { return MakePlan(spec); }}};
  return Guarded(spec.op(), ThreadsFor(spec), [&] {
    const Geometry g(spec);
    switch (spec.pass) {
      case ConvPass::kForward:
        return List(spec, ChooseForward(spec, g), DescribeForward<Spec>,
                    {DNNL_ARG_SRC, DNNL_ARG_DST});
      case ConvPass::kBackwardX:
        return List(spec, ChooseBackwardX(spec, g), DescribeBackwardX<Spec>,
                    {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST});
      default:
        return List(spec, ChooseBackwardW(spec, g), DescribeBackwardW<Spec>,
                    {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST});
    }
  });
}

/// On images as they come, and on each layout that the method knows.
std::vector<Candidate> WinogradCandidates(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  const std::vector<LayoutPtr> x = LaneLayouts(spec, r.input_shape()),
                               y = LaneLayouts(spec, r.output_shape());
  std::vector<Candidate> found;
  for (size_t i = 0; i <= x.size(); ++i) {
    ConvSpec wanted = spec;
    if (i > 0) wanted.x_layout = x[i - 1], wanted.dy_layout = y[i - 1];
    const PlanPtr plan = winograd::MakePlan(wanted);
    const std::string name = "winograd " + LayoutName(plan->input_layout(0));
    bool known = false;
    for (const Candidate& candidate : found) known = known || candidate.name == name;
    if (!known) found.push_back({name, [plan] { return plan; }});
  }
  return found;
}

std::string DeclinesWinograd(const ConvSpec& spec) {
  return winograd::Pays(spec) ? "" : "the direct method is faster here";
}

std::string RefusesTiles(const ConvSpec& spec) {
  if (tiles::BestUnit() == tiles::Unit::kPlain)
    return "tiles of images are for CPUs with AMX, or AVX-512 and bfloat16";
  return tiles::Refuses(spec);
}
std::vector<Candidate> TilesCandidates(const ConvSpec& spec) {
  const PlanPtr plan = tiles::MakePlan(spec);
  return {{plan->Describe() + " " + LayoutName(plan->input_layout(0)), [plan] { return plan; }}};
}
std::string DeclinesTiles(const ConvSpec& spec) {
  return tiles::Pays(spec) ? "" : "tiles of images would be largely empty, or oneDNN's are full";
}

}  // namespace

void RegisterConv() {
  Register<ConvSpec>(
      "tiles", RefusesTiles, [](const ConvSpec& spec) { return tiles::MakePlan(spec); },
      TilesCandidates, DeclinesTiles);
  Register<ConvSpec>(
      "winograd", [](const ConvSpec& spec) { return winograd::Refuses(spec); },
      [](const ConvSpec& spec) { return winograd::MakePlan(spec); }, WinogradCandidates,
      DeclinesWinograd);
  Register<ConvSpec>("onednn", Refuses<ConvSpec>, MakePlan<ConvSpec>, Candidates<ConvSpec>);
  Register<ConvTransposeSpec>("onednn", Refuses<ConvTransposeSpec>, MakePlan<ConvTransposeSpec>,
                              Candidates<ConvTransposeSpec>);
}

}  // namespace singa::onednn
