#include <algorithm>

#include "backend/onednn/blocked_reorder.h"
#include "backend/onednn/channel_lanes.h"
#include "backend/onednn/register.h"
#include "model/operation/kernel.h"
#include "model/operation/layout_spec.h"
#include "model/operation/reorder_spec.h"

namespace singa::onednn {
namespace {

/// Descriptors of both sides, in the same axes.
struct Sides {
  dnnl::memory::desc from, to;
};

Sides SidesOf(const ReorderSpec& spec) {
  const DnnlLayout* from = AsDnnl(spec.from);
  const DnnlLayout* to = AsDnnl(spec.to);
  return {from ? from->desc() : to->plain(), to ? to->desc() : from->plain()};
}

std::string Refuses(const ReorderSpec& spec) {
  const DnnlLayout* from = AsDnnl(spec.from);
  const DnnlLayout* to = AsDnnl(spec.to);
  if (!from && !to) return "neither layout is oneDNN's";
  if ((spec.from && !from) || (spec.to && !to)) return "one layout is of another backend";
  // Grouped filters have an axis more, and transposed ones their axes in another order.
  if (from && to && !(from->plain() == to->plain())) return "the layouts have different axes";
  return "";
}

class DnnlReorder final : public ReorderPlan {
 public:
  DnnlReorder(const Sides& sides, const dnnl::reorder::primitive_desc& pd)
      : ReorderPlan("onednn"),
        implementation_(pd.impl_info_str()),
        bound_(dnnl::reorder(pd),
               {{DNNL_ARG_FROM, sides.from, nullptr}, {DNNL_ARG_TO, sides.to, nullptr}},
               pd.scratchpad_desc()) {}
  void Move(Device&, const void* src, void* dst, void* workspace) const override {
    const void* pointers[] = {src, dst};
    bound_.Run("Reorder", pointers, workspace);
  }
  std::string Describe() const override { return "onednn " + implementation_; }
  size_t workspace_bytes() const override { return bound_.scratchpad_bytes(); }
  size_t bytes() const override { return size_t{24} << 10; }

 private:
  std::string implementation_;
  BoundPrimitive bound_;
};

/// What oneDNN has only its reference for.
class OwnReorder final : public ReorderPlan {
 public:
  explicit OwnReorder(const Sides& sides) : ReorderPlan("onednn"), move_(sides.from, sides.to) {}
  void Move(Device&, const void* src, void* dst, void*) const override { move_.Move(src, dst); }
  std::string Describe() const override { return "onednn layout, own copy"; }
  size_t bytes() const override { return move_.bytes(); }

 private:
  BlockedReorder move_;
};

PlanPtr MakePlan(const ReorderSpec& spec) {
  const int threads = ThreadsWorth(spec.shape.Count(), kElementsWorthThreads);
  return Guarded(spec.op(), threads, [&]() -> PlanPtr {
    const Sides sides = SidesOf(spec);
    const dnnl::reorder::primitive_desc pd(Engine(), sides.from, Engine(), sides.to,
                                           ScratchpadAttr());
    if (IsReference(pd.impl_info_str()) && BlockedReorder::Takes(sides.from, sides.to))
      return std::make_shared<OwnReorder>(sides);
    return std::make_shared<DnnlReorder>(sides, pd);
  });
}

/// Names a layout; there is nothing to run.
class PreferredLayout final : public Plan {
 public:
  explicit PreferredLayout(LayoutPtr layout) : Plan("onednn"), layout_(std::move(layout)) {}
  void Run(const Execution&) const override {}
  LayoutPtr output_layout(size_t) const override { return layout_; }

 private:
  LayoutPtr layout_;
};

std::string RefusesImage(const PreferredLayoutSpec& spec) {
  if (spec.shape.rank() != 4) return "only images (N, C, H, W) have one";
  return RefusesFloat(spec.dtype);
}

PlanPtr MakePreferred(const PreferredLayoutSpec& spec) {
  const LaneTag tag = UsesAvx512() ? LaneTag::nChw16c : LaneTag::nChw8c;
  return std::make_shared<PreferredLayout>(LaneLayout(spec.shape, spec.dtype, tag));
}

}  // namespace

void RegisterReorder() {
  Register<PreferredLayoutSpec>("onednn", RefusesImage, MakePreferred);
  Register<ReorderSpec>("onednn", Refuses, MakePlan);
}

}  // namespace singa::onednn
