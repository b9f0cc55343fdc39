// Local response normalisation, where oneDNN has fast kernels for both directions: on blocked and
// channels-last layouts, for sizes 3 and 5 and beta 0.75. The saved state has a format of oneDNN's
// own.

#include <cstring>

#include "backend/onednn/engine.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/kernel.h"
#include "model/operation/lrn/spec.h"

namespace singa::onednn {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Forward = dnnl::lrn_forward;
using Backward = dnnl::lrn_backward;

constexpr auto kAlgorithm = dnnl::algorithm::lrn_across_channels;

constexpr std::string_view kWorkspaceName = "workspace of ";

/// State that only the backward pass of the same primitive reads. It depends on x's layout in the
/// forward pass, which x may have lost since then.
class WorkspaceLayout final : public OpaqueLayout {
 public:
  WorkspaceLayout(size_t bytes, const Shape& x_shape, LayoutPtr x_layout)
      : OpaqueLayout({static_cast<int64_t>(bytes)}, kUInt8),
        x_shape_(x_shape),
        x_layout_(std::move(x_layout)) {}

  const Shape& x_shape() const { return x_shape_; }
  const LayoutPtr& x_layout() const { return x_layout_; }

  const char* backend() const override { return "onednn"; }
  size_t bytes() const override { return static_cast<size_t>(shape()[0]); }
  size_t hash() const override { return bytes() ^ x_layout_->hash(); }
  bool Equals(const OpaqueLayout& other) const override {
    const auto* workspace = dynamic_cast<const WorkspaceLayout*>(&other);
    return workspace && shape() == other.shape() && x_shape_ == workspace->x_shape_ &&
           SameLayout(x_layout_, workspace->x_layout_);
  }
  std::string ToString() const override {
    return std::string(kWorkspaceName) + x_shape_.ToString() + " " + x_layout_->ToString();
  }
  void Pack(const void* plain, void* opaque) const override { std::memcpy(opaque, plain, bytes()); }
  void Unpack(const void* opaque, void* plain) const override {
    std::memcpy(plain, opaque, bytes());
  }

 private:
  Shape x_shape_;
  LayoutPtr x_layout_;
};

const WorkspaceLayout* AsWorkspace(const LayoutPtr& layout) {
  return dynamic_cast<const WorkspaceLayout*>(layout.get());
}

/// Makes a workspace layout from its name.
LayoutPtr MakeNamed(const std::string& name, const Shape& shape, DType dtype) {
  if (!name.starts_with(kWorkspaceName)) return nullptr;
  const size_t end = name.find(") ");
  if (end == std::string::npos || dtype != kUInt8 || shape.rank() != 1) return nullptr;
  const size_t begin = kWorkspaceName.size();
  const Shape x_shape = opcheck::ShapeFromText("layout", name.substr(begin, end + 1 - begin));
  CheckShape("replay", x_shape, SizeOf(kFloat32));
  const LayoutPtr x_layout = BlockedLayoutNamed(name.substr(end + 2), x_shape, kFloat32);
  if (!x_layout) return nullptr;
  return std::make_shared<WorkspaceLayout>(static_cast<size_t>(shape[0]), x_shape, x_layout);
}

template <class Spec>
Forward::primitive_desc ForwardDesc(const Spec& spec, const LayoutPtr& x_layout, bool training) {
  const memory::desc data = ToDesc(x_layout, spec.shape, spec.dtype);
  Forward::primitive_desc pd(
      Engine(), training ? prop_kind::forward_training : prop_kind::forward_inference, kAlgorithm,
      data, data, spec.size, static_cast<float>(spec.alpha), static_cast<float>(spec.beta),
      static_cast<float>(spec.k), ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Forward::primitive_desc();
}

template <class Spec>
Backward::primitive_desc BackwardDesc(const Spec& spec, const LayoutPtr& x_layout,
                                      const Forward::primitive_desc& forward) {
  const memory::desc data = ToDesc(x_layout, spec.shape, spec.dtype);
  Backward::primitive_desc pd(Engine(), kAlgorithm, data, data, data, spec.size,
                              static_cast<float>(spec.alpha), static_cast<float>(spec.beta),
                              static_cast<float>(spec.k), forward, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Backward::primitive_desc();
}

std::string RefusesFields(const LrnFields& spec, const LayoutPtr& x_layout) {
  if (spec.dtype != kFloat32) return "oneDNN keeps sums in the type of x";
  if (spec.shape.Count() == 0) return "there is nothing to compute";
  if (spec.size % 2 == 0) return "oneDNN centres windows of even size elsewhere";
  // With channels-last, oneDNN 3.2 crashes for size 1 and computes wrong values for size 7 and
  // above.
  if (spec.size != 3 && spec.size != 5) return "only sizes 3 and 5 are known to be right";
  if (!AsBlocked(x_layout)) return "row-major, or the layout of another backend";
  return "";
}

std::string Refuses(const LrnForwardSpec& spec) { return RefusesFields(spec, spec.x_layout); }

constexpr const char* kSavedOfAnother = "saved is of another x";

std::string Refuses(const LrnBackwardSpec& spec) {
  const WorkspaceLayout* workspace = AsWorkspace(spec.saved_layout);
  if (!workspace) return "another implementation did forward";
  if (workspace->x_shape() != spec.shape) return kSavedOfAnother;
  return RefusesFields(spec, workspace->x_layout());
}

/// Forward that saves and backward: both have to be fast, since they are chosen together.
struct Pair {
  template <class Spec>
  Pair(const Spec& spec, const LayoutPtr& x_layout) : forward(ForwardDesc(spec, x_layout, true)) {
    if (forward) backward = BackwardDesc(spec, x_layout, forward);
    if (forward) saved = forward.workspace_desc().get_size();
  }
  explicit operator bool() const { return forward && backward && saved > 0; }

  Forward::primitive_desc forward;
  Backward::primitive_desc backward;
  size_t saved = 0;
};

class ForwardPlan final : public PrimitivePlan {
 public:
  using PrimitivePlan::PrimitivePlan;
  size_t private_bytes(size_t i) const override {
    return i == 1 && output_layout(1) ? output_layout(1)->bytes() : 0;
  }
};

PlanOrReason MakeForward(const LrnForwardSpec& spec) {
  return Guarded(spec.op(), [&]() -> PlanOrReason {
    const Pair pair(spec, spec.x_layout);
    if (!pair) return OnlyReference();
    const auto pd = spec.save ? pair.forward : ForwardDesc(spec, spec.x_layout, false);
    if (!pd) return OnlyReference();
    std::vector<Argument> inputs{{DNNL_ARG_SRC, pd.src_desc(), spec.x_layout}};
    std::vector<Argument> outputs{{DNNL_ARG_DST, pd.dst_desc(), spec.x_layout}};
    if (spec.save) {
      const memory::desc kept = pd.workspace_desc();
      outputs.push_back(
          {DNNL_ARG_WORKSPACE, kept,
           std::make_shared<WorkspaceLayout>(kept.get_size(), spec.shape, spec.x_layout)});
    }
    return std::make_shared<ForwardPlan>(spec.op(), pd, Forward(pd), std::move(inputs),
                                         std::move(outputs));
  });
}

PlanOrReason MakeBackward(const LrnBackwardSpec& spec) {
  const LayoutPtr& layout = AsWorkspace(spec.saved_layout)->x_layout();
  return Guarded(spec.op(), [&]() -> PlanOrReason {
    const Pair pair(spec, layout);
    if (!pair) return OnlyReference();
    if (pair.saved != spec.saved_layout->bytes()) return PlanOrReason::None(kSavedOfAnother);
    const auto& [forward, pd, saved] = pair;
    return std::make_shared<PrimitivePlan>(
        spec.op(), pd, Backward(pd),
        std::vector<Argument>{{DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), layout},
                              {DNNL_ARG_SRC, pd.src_desc(), layout},
                              {DNNL_ARG_WORKSPACE, forward.workspace_desc(), spec.saved_layout}},
        std::vector<Argument>{{DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), layout}});
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  AddLayoutMaker("onednn", MakeNamed);
  Register<LrnForwardSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = MakeForward});
  Register<LrnBackwardSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = MakeBackward});
}

}  // namespace singa::onednn
