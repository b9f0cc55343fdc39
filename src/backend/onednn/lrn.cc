// Local response normalisation, where oneDNN has a fast implementation of both directions: on the
// layouts of convolutions, for sizes 3 and 5 and beta 0.75. What it keeps for backward is its own.

#include <cstring>

#include "backend/onednn/engine.h"
#include "backend/onednn/register.h"
#include "model/operation/kernel.h"
#include "model/operation/lrn_spec.h"

namespace singa::onednn {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Forward = dnnl::lrn_forward;
using Backward = dnnl::lrn_backward;

constexpr auto kAlgorithm = dnnl::algorithm::lrn_across_channels;

constexpr std::string_view kWorkspaceName = "workspace of ";

/// Bytes that only backward of the same primitive reads. They follow x's layout in forward, which
/// x may have lost since.
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

/// A workspace from its name, or another layout.
LayoutPtr MakeNamed(const std::string& name, const Shape& shape, DType dtype) {
  if (!name.starts_with(kWorkspaceName)) return LayoutNamed(name, shape, dtype);
  const size_t end = name.find(") ");
  if (end == std::string::npos || dtype != kUInt8 || shape.rank() != 1) return nullptr;
  const size_t begin = kWorkspaceName.size();
  const Shape x_shape = opcheck::ShapeFromText("layout", name.substr(begin, end + 1 - begin));
  CheckShape("replay", x_shape, SizeOf(kFloat32));
  const LayoutPtr x_layout = LayoutNamed(name.substr(end + 2), x_shape, kFloat32);
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

template <class Spec>
std::string RefusesParameters(const Spec& spec) {
  if (spec.dtype != kFloat32) return "oneDNN keeps sums in the type of x";
  if (spec.shape.Count() == 0) return "there is nothing to compute";
  if (spec.size % 2 == 0) return "oneDNN centres windows of even size elsewhere";
  // On channels-last, oneDNN 3.2 crashes for size 1 and gives wrong numbers from 7 on.
  if (spec.size != 3 && spec.size != 5) return "only sizes 3 and 5 are known to be right";
  return "";
}

constexpr const char* kOnlyReference = "oneDNN has only its slow reference implementation";

/// Both directions have to be fast: they are chosen together.
template <class Spec>
std::string RefusesPair(const Spec& spec, const LayoutPtr& x_layout) {
  if (!AsDnnl(x_layout)) return "row-major, or the layout of another backend";
  return Guarded(spec.op(), [&]() -> std::string {
    const auto forward = ForwardDesc(spec, x_layout, true);
    if (!forward || forward.workspace_desc().get_size() == 0 ||
        !BackwardDesc(spec, x_layout, forward))
      return kOnlyReference;
    return "";
  });
}

std::string RefusesForward(const LrnForwardSpec& spec) {
  if (std::string reason = RefusesParameters(spec); !reason.empty()) return reason;
  if (std::string reason = RefusesPair(spec, spec.x_layout); !reason.empty()) return reason;
  return Guarded(spec.op(), [&]() -> std::string {
    return ForwardDesc(spec, spec.x_layout, spec.save) ? "" : kOnlyReference;
  });
}

std::string RefusesBackward(const LrnBackwardSpec& spec) {
  if (std::string reason = RefusesParameters(spec); !reason.empty()) return reason;
  const WorkspaceLayout* workspace = AsWorkspace(spec.saved_layout);
  if (!workspace) return "another implementation did forward";
  if (workspace->x_shape() != spec.shape) return "saved is of another x";
  if (std::string reason = RefusesPair(spec, workspace->x_layout()); !reason.empty()) return reason;
  return Guarded(spec.op(), [&]() -> std::string {
    const auto forward = ForwardDesc(spec, workspace->x_layout(), true);
    return forward.workspace_desc().get_size() == workspace->bytes() ? "" : "saved is of another x";
  });
}

class ForwardPlan final : public PrimitivePlan {
 public:
  using PrimitivePlan::PrimitivePlan;
  size_t private_bytes(size_t i) const override {
    return i == 1 && output_layout(1) ? output_layout(1)->bytes() : 0;
  }
};

PlanPtr MakeForward(const LrnForwardSpec& spec) {
  return Guarded(spec.op(), [&]() -> PlanPtr {
    const auto pd = ForwardDesc(spec, spec.x_layout, spec.save);
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

PlanPtr MakeBackward(const LrnBackwardSpec& spec) {
  return Guarded(spec.op(), [&]() -> PlanPtr {
    const LayoutPtr& layout = AsWorkspace(spec.saved_layout)->x_layout();
    const auto forward = ForwardDesc(spec, layout, true);
    const auto pd = BackwardDesc(spec, layout, forward);
    return std::make_shared<PrimitivePlan>(
        spec.op(), pd, Backward(pd),
        std::vector<Argument>{{DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), layout},
                              {DNNL_ARG_SRC, pd.src_desc(), layout},
                              {DNNL_ARG_WORKSPACE, forward.workspace_desc(), spec.saved_layout}},
        std::vector<Argument>{{DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), layout}});
  });
}

}  // namespace

void RegisterLrn() {
  opcheck::AddLayoutMaker("onednn", MakeNamed);
  Register<LrnForwardSpec>("onednn", RefusesForward, MakeForward);
  Register<LrnBackwardSpec>("onednn", RefusesBackward, MakeBackward);
}

}  // namespace singa::onednn
