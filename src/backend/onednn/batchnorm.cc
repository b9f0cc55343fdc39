// Batch normalisation on the layouts in which convolutions leave their results, and on (N, C). Not
// on row-major images: there oneDNN walks each channel several times, and our plain kernel once
// less.

#include <array>
#include <vector>

#include "backend/onednn/engine.h"
#include "backend/onednn/register.h"
#include "model/operation/batchnorm_spec.h"
#include "model/operation/kernel.h"

namespace singa::onednn {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;
using dnnl::prop_kind;
using Forward = dnnl::batch_normalization_forward;
using Backward = dnnl::batch_normalization_backward;

/// An argument of the primitive, and which input or output of the operation it is.
struct Slot {
  size_t index;
  Argument argument;
};

/// A primitive some of whose arguments may be left out.
class BatchNormPlan : public Plan {
 public:
  BatchNormPlan(const char* op, const dnnl::primitive_desc_base& pd,
                const dnnl::primitive& primitive, std::vector<Slot> inputs,
                std::vector<Slot> outputs)
      : Plan("onednn"),
        op_(op),
        implementation_(pd.impl_info_str()),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        bound_(primitive, Arguments(), pd.scratchpad_desc()) {}

  void Run(const Execution& execution) const override {
    std::array<const void*, 8> pointers;
    size_t count = 0;
    for (const Slot& slot : inputs_) pointers[count++] = execution.inputs[slot.index].raw_data();
    for (const Slot& slot : outputs_) pointers[count++] = execution.outputs[slot.index].raw_data();
    bound_.Run(op_, pointers.data(), execution.workspace);
  }
  std::string Describe() const override { return "onednn " + implementation_; }
  size_t workspace_bytes() const override { return bound_.scratchpad_bytes(); }
  LayoutPtr input_layout(size_t i) const override { return LayoutOf(inputs_, i); }
  LayoutPtr output_layout(size_t i) const override { return LayoutOf(outputs_, i); }
  size_t bytes() const override { return size_t{48} << 10; }

 private:
  std::vector<Argument> Arguments() const {
    std::vector<Argument> all;
    for (const Slot& slot : inputs_) all.push_back(slot.argument);
    for (const Slot& slot : outputs_) all.push_back(slot.argument);
    return all;
  }
  static LayoutPtr LayoutOf(const std::vector<Slot>& slots, size_t index) {
    for (const Slot& slot : slots)
      if (slot.index == index) return slot.argument.layout;
    return nullptr;
  }

  const char* op_;
  std::string implementation_;
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
  BoundPrimitive bound_;
};

class TrainingPlan final : public BatchNormPlan {
 public:
  TrainingPlan(const BatchNormForwardSpec& spec, const Forward::primitive_desc& pd,
               std::vector<Slot> inputs, std::vector<Slot> outputs)
      : BatchNormPlan(spec.op(), pd, Forward(pd), std::move(inputs), std::move(outputs)),
        channels_(spec.shape[1]),
        count_(spec.shape[0] * spec.shape.Count(2, spec.shape.rank())) {}
  void Run(const Execution& execution) const override {
    BatchNormPlan::Run(execution);
    const auto running = [&](size_t i) {
      return execution.outputs[i].empty() ? nullptr : execution.out<float>(i);
    };
    UpdateRunningStatistics<float>(channels_, count_, execution.scalars.v[0],
                                   execution.out<float>(1), execution.out<float>(2), running(3),
                                   running(4));
  }

 private:
  int64_t channels_;
  int64_t count_;
};

template <class Spec>
int64_t Spatial(const Spec& spec) {
  return spec.shape.Count(2, spec.shape.rank());
}

/// Of x, y and their gradients.
template <class Spec>
memory::desc Data(const Spec& spec) {
  // A row-major (N, C, 1, 1) has its channels side by side.
  if (!spec.x_layout && Spatial(spec) == 1)
    return PlainDesc({spec.shape[0], spec.shape[1]}, spec.dtype);
  return ToDesc(spec.x_layout, spec.shape, spec.dtype);
}

template <class Spec>
Slot DataSlot(size_t index, int id, const Spec& spec) {
  return {index, {id, Data(spec), spec.x_layout}};
}

template <class Spec>
Slot ChannelSlot(size_t index, int id, const Spec& spec) {
  return {index, {id, PlainDesc({spec.shape[1]}, kFloat32), nullptr}};
}

normalization_flags Flags(bool scale, bool shift, bool frozen) {
  auto flags = normalization_flags::none;
  if (scale) flags |= normalization_flags::use_scale;
  if (shift) flags |= normalization_flags::use_shift;
  if (frozen) flags |= normalization_flags::use_global_stats;
  return flags;
}

Forward::primitive_desc ForwardDesc(const BatchNormForwardSpec& spec) {
  const memory::desc data = Data(spec);
  Forward::primitive_desc pd(
      Engine(), spec.training ? prop_kind::forward_training : prop_kind::forward_inference, data,
      data, static_cast<float>(spec.epsilon), Flags(spec.has_scale, spec.has_bias, !spec.training),
      ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Forward::primitive_desc();
}

Backward::primitive_desc BackwardDesc(const BatchNormBackwardSpec& spec) {
  const memory::desc data = Data(spec);
  const auto epsilon = static_cast<float>(spec.epsilon);
  const auto flags = Flags(spec.has_scale, spec.need_scale, !spec.training);
  const Forward::primitive_desc hint(Engine(), prop_kind::forward_training, data, data, epsilon,
                                     flags, ScratchpadAttr(), true);
  if (!hint) return {};
  Backward::primitive_desc pd(Engine(),
                              spec.need_scale ? prop_kind::backward : prop_kind::backward_data,
                              data, data, data, epsilon, flags, hint, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Backward::primitive_desc();
}

template <class Spec>
std::string RefusesData(const Spec& spec) {
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (spec.shape.Count() == 0) return "there is nothing to compute";
  if (spec.x_layout && !AsDnnl(spec.x_layout)) return "the layout is of another backend";
  if (!spec.x_layout && Spatial(spec) > 1) return "the plain kernel is faster on row-major images";
  return "";
}

constexpr const char* kOnlyReference = "oneDNN has only its slow reference implementation";

std::string RefusesForward(const BatchNormForwardSpec& spec) {
  if (std::string reason = RefusesData(spec); !reason.empty()) return reason;
  return Guarded(spec.op(),
                 [&]() -> std::string { return ForwardDesc(spec) ? "" : kOnlyReference; });
}

std::string RefusesBackward(const BatchNormBackwardSpec& spec) {
  if (std::string reason = RefusesData(spec); !reason.empty()) return reason;
  if (!spec.need_x) return "oneDNN computes dscale and dbias only along with dx";
  if (spec.need_scale && !spec.has_scale) return "oneDNN computes dscale only where there is scale";
  return Guarded(spec.op(),
                 [&]() -> std::string { return BackwardDesc(spec) ? "" : kOnlyReference; });
}

PlanPtr MakeForward(const BatchNormForwardSpec& spec) {
  return Guarded(spec.op(), [&]() -> PlanPtr {
    const auto pd = ForwardDesc(spec);
    std::vector<Slot> inputs{DataSlot(0, DNNL_ARG_SRC, spec)};
    std::vector<Slot> outputs{DataSlot(0, DNNL_ARG_DST, spec)};
    if (spec.has_scale) inputs.push_back(ChannelSlot(1, DNNL_ARG_SCALE, spec));
    if (spec.has_bias) inputs.push_back(ChannelSlot(2, DNNL_ARG_SHIFT, spec));
    if (!spec.training) {
      inputs.push_back(ChannelSlot(3, DNNL_ARG_MEAN, spec));
      inputs.push_back(ChannelSlot(4, DNNL_ARG_VARIANCE, spec));
      return std::make_shared<BatchNormPlan>(spec.op(), pd, Forward(pd), std::move(inputs),
                                             std::move(outputs));
    }
    outputs.push_back(ChannelSlot(1, DNNL_ARG_MEAN, spec));
    outputs.push_back(ChannelSlot(2, DNNL_ARG_VARIANCE, spec));
    return std::make_shared<TrainingPlan>(spec, pd, std::move(inputs), std::move(outputs));
  });
}

PlanPtr MakeBackward(const BatchNormBackwardSpec& spec) {
  return Guarded(spec.op(), [&]() -> PlanPtr {
    const auto pd = BackwardDesc(spec);
    std::vector<Slot> inputs{DataSlot(0, DNNL_ARG_DIFF_DST, spec), DataSlot(1, DNNL_ARG_SRC, spec),
                             ChannelSlot(3, DNNL_ARG_MEAN, spec),
                             ChannelSlot(4, DNNL_ARG_VARIANCE, spec)};
    if (spec.has_scale) inputs.push_back(ChannelSlot(2, DNNL_ARG_SCALE, spec));
    std::vector<Slot> outputs{DataSlot(0, DNNL_ARG_DIFF_SRC, spec)};
    if (spec.need_scale) {
      outputs.push_back(ChannelSlot(1, DNNL_ARG_DIFF_SCALE, spec));
      outputs.push_back(ChannelSlot(2, DNNL_ARG_DIFF_SHIFT, spec));
    }
    return std::make_shared<BatchNormPlan>(spec.op(), pd, Backward(pd), std::move(inputs),
                                           std::move(outputs));
  });
}

}  // namespace

void RegisterBatchNorm() {
  Register<BatchNormForwardSpec>("onednn", RefusesForward, MakeForward);
  Register<BatchNormBackwardSpec>("onednn", RefusesBackward, MakeBackward);
}

}  // namespace singa::onednn
