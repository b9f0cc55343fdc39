// Convolution and transposed convolution. Activations may keep the layout in which they arrive;
// filters take the layout that the primitive prefers. The tensor that is added to a convolution is
// in y beforehand, and the primitive accumulates into y. The activation is a pass of our own
// (backend/cpu/activate.h).

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "backend/onednn/conv_geometry.h"
#include "backend/onednn/defects.h"
#include "backend/onednn/engine.h"
#include "core/device/cache_size.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/stored_size.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/spec.h"

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

/// Layouts of the activations to request from oneDNN; null lets oneDNN choose.
struct LayoutPair {
  LayoutPtr x, y;
};

/// Layouts that LayoutPairs() tries besides the present ones: channels-last and blocks of channels.
std::vector<LayoutPtr> OtherLayouts(const ConvSpec& spec, const Shape& shape) {
  return spec.plain ? std::vector<LayoutPtr>() : LaneLayouts(shape, spec.dtype);
}

memory::desc Activation(const ConvSpec& spec, const ConvGeometry& g, const LayoutPtr& layout,
                        const Shape& shape) {
  if (spec.plain) return g.Image(nullptr, shape);
  return AsBlocked(layout) ? g.Image(layout, shape) : g.AnyImage(shape);
}

/// Channels-last if whole blocks of channels need more than 15 % of padding: with blocks of 16, 20
/// channels take the memory and work of 32. Otherwise null, because oneDNN's own choice is better.
LayoutPtr NarrowLayout(const ConvSpec& spec, const Shape& shape) {
  const int64_t padded = RoundUp(shape[1], BlockedChannels());
  if (spec.plain || padded * 100 <= shape[1] * 115) return nullptr;
  return LaneLayout(shape, spec.dtype, LaneTag::kNhwc);
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
using ForwardDesc = typename Primitives<Spec>::Forward::primitive_desc;

template <class Spec>
ForwardDesc<Spec> DescribeForward(const Spec& spec, const ConvGeometry& g, const memory::desc& x,
                                  const memory::desc& y) {
  return ForwardDesc<Spec>(Engine(), dnnl::prop_kind::forward_training,
                           Primitives<Spec>::kAlgorithm, x, g.any_filter, g.Bias(), y, g.strides,
                           g.dilations, g.before, g.after, ForwardAttr(spec), true);
}

/// Calls f<pass>(), for a pass that oneDNN has.
template <class F>
auto SwitchPass(ConvPass pass, const F& f) {
  switch (pass) {
    case ConvPass::kForward:
      return f.template operator()<ConvPass::kForward>();
    case ConvPass::kBackwardX:
      return f.template operator()<ConvPass::kBackwardX>();
    default:
      return f.template operator()<ConvPass::kBackwardW>();
  }
}

/// The forward descriptor that those of backward are made from, and that next_impl reads again.
/// Only its geometry matters. Forward needs none.
template <ConvPass pass, class Spec>
ForwardDesc<Spec> Hint(const Spec& spec, const ConvGeometry& g) {
  if constexpr (pass == ConvPass::kForward) return {};
  return DescribeForward(spec, g, g.AnyImage(g.x), g.AnyImage(g.y));
}

/// The descriptor of a pass on images in these layouts; empty where oneDNN has none.
template <ConvPass pass, class Spec>
auto Describe(const Spec& spec, const ConvGeometry& g, const LayoutPair& pair,
              const ForwardDesc<Spec>& hint) {
  const memory::desc x = Activation(spec, g, pair.x, g.x), y = Activation(spec, g, pair.y, g.y);
  if constexpr (pass == ConvPass::kForward) {
    return DescribeForward(spec, g, x, y);
  } else if constexpr (pass == ConvPass::kBackwardX) {
    using Desc = typename Primitives<Spec>::BackwardX::primitive_desc;
    return hint ? Desc(Engine(), Primitives<Spec>::kAlgorithm, x, g.any_filter, y, g.strides,
                       g.dilations, g.before, g.after, hint, ScratchpadAttr(), true)
                : Desc();
  } else {
    using Desc = typename Primitives<Spec>::BackwardW::primitive_desc;
    return hint ? Desc(Engine(), Primitives<Spec>::kAlgorithm, x, g.any_filter, g.Bias(), y,
                       g.strides, g.dilations, g.before, g.after, hint, ScratchpadAttr(), true)
                : Desc();
  }
}

/// The arguments that are images, x or its gradient first.
template <ConvPass pass>
constexpr int kImageX = pass == ConvPass::kBackwardX ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
template <ConvPass pass>
constexpr int kImageY = pass == ConvPass::kForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;

/// The layouts of the images of a primitive.
template <ConvPass pass, class Desc>
LayoutPair ImagesOf(const ConvGeometry& g, const Desc& pd) {
  const auto layout = [&](int id, const Shape& shape) {
    return g.LayoutOf(pd.query_md(dnnl::query::exec_arg_md, id), shape);
  };
  return {layout(kImageX<pass>, g.x), layout(kImageY<pass>, g.y)};
}

/// What is wrong with an implementation for this call; null where no defect is known.
template <ConvPass pass, class Spec, class Desc>
const Defect* FindDefect(const Spec& spec, const ConvGeometry& g, const Desc& pd) {
  const LayoutPair images = ImagesOf<pass>(g, pd);
  return DefectOf(
      {pd.impl_info_str(), std::is_same_v<Spec, ConvTransposeSpec>, spec, images.x, images.y});
}

/// Advances to the first implementation that is neither a reference nor wrong. Says why there is
/// none; empty where there is one.
template <ConvPass pass, class Spec, class Desc>
std::string SkipUnfit(const Spec& spec, const ConvGeometry& g, Desc* pd) {
  std::string why = "oneDNN has only its slow reference implementation";
  if (!*pd) return why;
  do {
    if (IsReference(pd->impl_info_str())) continue;
    const Defect* defect = FindDefect<pass>(spec, g, *pd);
    if (!defect) return "";
    why = defect->what;
  } while (pd->next_impl());
  return why;
}

/// The layouts that Choose tries, best first. The last pair leaves at least one to oneDNN.
template <ConvPass pass>
std::array<LayoutPair, 3> PairsToChooseFrom(const ConvSpec& spec, const ConvGeometry& g) {
  const LayoutPtr &x = spec.x_layout, &dy = spec.dy_layout;
  if constexpr (pass == ConvPass::kForward)
    return {{{x, NarrowLayout(spec, g.y)}, {x, nullptr}, {nullptr, nullptr}}};
  if constexpr (pass == ConvPass::kBackwardX) return {{{x, dy}, {nullptr, dy}, {nullptr, nullptr}}};
  return {{{x, dy}, {x, nullptr}, {nullptr, nullptr}}};
}

/// The descriptor of the first pair that a kernel of the better kind fulfils; else of the first
/// that one of a matrix product does. A reorder costs less than such a kernel. Where there is none,
/// `why_none` says why.
template <ConvPass pass, class Spec>
auto Choose(const Spec& spec, const ConvGeometry& g, std::string* why_none) {
  const ForwardDesc<Spec> hint = Hint<pass>(spec, g);
  const auto pairs = PairsToChooseFrom<pass>(spec, g);
  decltype(Describe<pass>(spec, g, pairs[0], hint)) second;
  for (const LayoutPair& pair : pairs) {
    if (!pair.x && !pair.y && &pair != &pairs.back()) continue;  // the last pair is the same
    auto pd = Describe<pass>(spec, g, pair, hint);
    std::string unfit = SkipUnfit<pass>(spec, g, &pd);
    if (!unfit.empty()) {
      *why_none = std::move(unfit);
      continue;
    }
    if (!std::string_view(pd.impl_info_str()).starts_with("gemm")) return pd;
    if (!second) second = pd;
  }
  return second;
}

int ThreadsFor(const ConvSpec& spec) {
  return ThreadsWorth(spec.geometry.output_shape().Count() * spec.geometry.col_height,
                      kMultiplyAddsWorthThreads);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (spec.pass == ConvPass::kBackwardB) return "oneDNN has a bias's gradient along with dW only";
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  return "";
}

/// Accumulates into y. y takes over the memory of the added tensor, or gets a copy of it.
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
    if (add != y)
      ParallelFor(static_cast<int64_t>(StoredBytes(execution.outputs[0])), kParallelGrain,
                  [&](int64_t begin, int64_t end) {
                    std::memcpy(y + begin, add + begin, static_cast<size_t>(end - begin));
                  });
    PrimitivePlan::Run(execution);
  }

 private:
  size_t add_;
};

/// Describes the first `count` images of a batch; empty if the images are not contiguous.
memory::desc FirstImages(const memory::desc& images, int64_t count) {
  memory::dims dims = images.get_dims();
  dims[0] = count;
  return images.submemory_desc(dims, memory::dims(dims.size(), 0), true);
}

/// Number of images to compute before the activation runs over them: as many as fit in the caches,
/// but at least one per thread. It divides the batch.
int64_t ImagesBeforeActivation(const memory::desc& y, int64_t threads) {
  const int64_t batch = y.get_dims()[0], bytes = static_cast<int64_t>(y.get_size());
  const int64_t fit = batch * SecondLevelCacheBytes() * threads / std::max<int64_t>(bytes, 1);
  for (int64_t count = std::clamp(fit, std::min(threads, batch), batch); count < batch; ++count)
    if (batch % count == 0) return count;
  return batch;
}

/// The descriptor of the same primitive for fewer images with the same filter layout; empty if
/// oneDNN has none.
template <class Desc, class Spec>
Desc ForSomeImages(const Spec& spec, const ConvGeometry& g, const Desc& all, int64_t images) {
  const memory::desc x = FirstImages(all.src_desc(), images);
  const memory::desc y = FirstImages(all.dst_desc(), images);
  if (!x || !y) return {};
  Desc pd = DescribeForward(spec, g, x, y);
  const bool fit = SkipUnfit<ConvPass::kForward>(spec, g, &pd).empty();
  return fit && pd.weights_desc() == all.weights_desc() ? pd : Desc();
}

template <class Spec>
PlanPtr PlanOf(const Spec& spec, const ConvGeometry& g,
               const typename Primitives<Spec>::Forward::primitive_desc& all) {
  auto pd = all;
  std::vector<Argument> inputs = {g.BindImage(DNNL_ARG_SRC, all.src_desc(), g.x),
                                  g.BindFilter(DNNL_ARG_WEIGHTS, all.weights_desc())};
  if (g.bias) inputs.push_back(g.BindBias(DNNL_ARG_BIAS));
  std::vector<Argument> outputs = {g.BindImage(DNNL_ARG_DST, all.dst_desc(), g.y)};
  int64_t groups = 1;
  if (spec.activation) {
    const int64_t batch = g.x[0], images = ImagesBeforeActivation(all.dst_desc(), ThreadsFor(spec));
    if (const auto some = images < batch ? ForSomeImages(spec, g, all, images) : decltype(pd)()) {
      pd = some;
      inputs[0].desc = pd.src_desc();
      outputs[0].desc = pd.dst_desc();
      groups = batch / images;
    }
  }
  const typename Primitives<Spec>::Forward primitive(pd);
  std::shared_ptr<PrimitivePlan> plan;
  if (spec.has_add)
    plan = std::make_shared<SumPlan>(spec.add_input(), spec.op(), pd, primitive, std::move(inputs),
                                     std::move(outputs));
  else
    plan = std::make_shared<PrimitivePlan>(spec.op(), pd, primitive, std::move(inputs),
                                           std::move(outputs));
  if (spec.activation) plan->AddActivation(spec.activation, groups);
  return plan;
}

template <class Spec>
PlanPtr PlanOf(const Spec& spec, const ConvGeometry& g,
               const typename Primitives<Spec>::BackwardX::primitive_desc& pd) {
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, typename Primitives<Spec>::BackwardX(pd),
      std::vector<Argument>{g.BindImage(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y),
                            g.BindFilter(DNNL_ARG_WEIGHTS, pd.weights_desc())},
      std::vector<Argument>{g.BindImage(DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), g.x)});
}

template <class Spec>
PlanPtr PlanOf(const Spec& spec, const ConvGeometry& g,
               const typename Primitives<Spec>::BackwardW::primitive_desc& pd) {
  std::vector<Argument> outputs = {g.BindFilter(DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc())};
  if (g.bias) outputs.push_back(g.BindBias(DNNL_ARG_DIFF_BIAS));
  return std::make_shared<PrimitivePlan>(
      spec.op(), pd, typename Primitives<Spec>::BackwardW(pd),
      std::vector<Argument>{g.BindImage(DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), g.y),
                            g.BindImage(DNNL_ARG_SRC, pd.src_desc(), g.x)},
      std::move(outputs));
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanOrReason {
    const ConvGeometry g(spec);
    return SwitchPass(spec.pass, [&]<ConvPass pass>() -> PlanOrReason {
      std::string why_none;
      const auto pd = Choose<pass>(spec, g, &why_none);
      return pd ? PlanOrReason(PlanOf(spec, g, pd)) : PlanOrReason::None(std::move(why_none));
    });
  });
}

/// Pairs of layouts to try: the present ones, oneDNN's choice, and each of OtherLayouts().
std::vector<LayoutPair> LayoutPairs(const ConvSpec& spec, const ConvGeometry& g) {
  const std::vector<LayoutPtr> x = OtherLayouts(spec, g.x), y = OtherLayouts(spec, g.y);
  std::vector<LayoutPair> pairs = {{spec.x_layout, spec.dy_layout}, {nullptr, nullptr}};
  for (size_t i = 0; i < x.size(); ++i) {
    pairs.push_back({x[i], y[i]});
    pairs.push_back({nullptr, y[i]});  // the first layer's x stays plain
  }
  return pairs;
}

/// True for SSE4.1 kernels on a newer CPU. oneDNN offers them, too, at a quarter of the speed.
bool IsForOlderCpus(std::string_view implementation) {
  return implementation.find("sse41") != std::string_view::npos &&
         AllowedInstructionSet() >= InstructionSet::kAvx2;
}

/// Make's own, and then all implementations for all pairs, each once, also those that are known
/// to be wrong. Names say implementation and images: "onednn jit:avx2 nhwc nChw8c".
template <ConvPass pass, class Spec>
std::vector<Candidate> List(const Spec& spec) {
  const ConvGeometry g(spec);
  const auto hint = Hint<pass>(spec, g);
  const auto name_of = [&](const auto& pd) {
    const LayoutPair images = ImagesOf<pass>(g, pd);
    return std::string("onednn ") + pd.impl_info_str() + " " + LayoutName(images.x) + " " +
           LayoutName(images.y);
  };
  std::string why_none;
  std::vector<Candidate> candidates;
  const auto first = Choose<pass>(spec, g, &why_none);
  if (first) candidates.push_back({name_of(first), [spec] { return Make(spec).plan(); }});
  for (const LayoutPair& pair : LayoutPairs(spec, g)) {
    auto pd = Describe<pass>(spec, g, pair, hint);
    for (int skipped = 0; pd; ++skipped) {
      const std::string name = name_of(pd);
      const bool known = std::any_of(candidates.begin(), candidates.end(),
                                     [&](const Candidate& other) { return other.name == name; });
      const Defect* defect = FindDefect<pass>(spec, g, pd);
      if (!known && !IsReference(pd.impl_info_str()) && !IsForOlderCpus(pd.impl_info_str()) &&
          !(defect && defect->crashes)) {
        Candidate candidate{name, [=] {
                              return Guarded(spec.op(), ThreadsFor(spec), [&] {
                                const ConvGeometry own(spec);
                                const auto own_hint = Hint<pass>(spec, own);
                                auto same = Describe<pass>(spec, own, pair, own_hint);
                                for (int i = 0; i < skipped; ++i) same.next_impl();
                                return PlanOf(spec, own, same);
                              });
                            }};
        if (defect) candidate.defect = defect->what;
        if (first || !candidate.defect.empty()) candidates.push_back(std::move(candidate));
      }
      if (!pd.next_impl()) break;
    }
  }
  return candidates;
}

template <class Spec>
std::vector<Candidate> Candidates(const Spec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&] {
    return SwitchPass(spec.pass, [&]<ConvPass pass>() { return List<pass>(spec); });
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<ConvSpec>(DeviceKind::kCpu, "onednn",
                     {.refuses = Refuses, .make = Make, .candidates = Candidates});
  Register<ConvTransposeSpec>(DeviceKind::kCpu, "onednn",
                              {.refuses = Refuses, .make = Make, .candidates = Candidates});
}

}  // namespace singa::onednn
