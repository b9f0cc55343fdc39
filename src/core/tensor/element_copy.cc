#include "core/tensor/element_copy.h"

#include <cstring>

#include "core/statistics/counted_reorder.h"
#include "singa/core/device.h"

namespace singa {
namespace {

class Fill final : public Plan {
 public:
  Fill() : Plan("core") {}
  void Run(const Execution& execution) const override {
    const Tensor& t = execution.outputs[0];
    if (t.layout()) {  // the value is 0, which has the same bytes in all layouts
      execution.device.ZeroBytes(t.raw_data(), t.block()->size());
    } else {
      execution.device.FillElements(t, execution.scalars.v[0]);
    }
  }
};

/// The memory of an opaque tensor, padding included, as a one-dimensional tensor.
Tensor Physical(Device& device, const Tensor& t) {
  const size_t bytes = t.layout()->bytes();
  const auto block = std::make_shared<Block>(device.shared_from_this(), t.raw_data(), bytes, [] {});
  return Tensor(block, {static_cast<int64_t>(bytes / SizeOf(t.data_type()))}, {1}, 0,
                t.data_type());
}

class Copy final : public Plan {
 public:
  Copy() : Plan("core") {}
  void Run(const Execution& execution) const override {
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
    if (to.layout() && to.data_type() == from.data_type()) {
      execution.device.CopyBytes(to.raw_data(), from.raw_data(), to.block()->size());
    } else if (to.layout()) {  // padding is converted, too: 0 is 0 in all types
      execution.device.CopyElements(Physical(execution.device, from),
                                    Physical(execution.device, to));
    } else {
      execution.device.CopyElements(from, to);
    }
  }
};

class MemoryCopy final : public Plan {
 public:
  MemoryCopy() : Plan("core") {}
  std::string Describe() const override { return "core, as it lies"; }
  int inplace_input(size_t i) const override { return i == 0 ? 0 : -1; }
  void Run(const Execution& execution) const override {
    const void* from = execution.inputs[0].raw_data();
    void* to = execution.outputs[0].raw_data();
    if (from != to) execution.device.CopyBytes(to, from, execution.outputs[0].block()->size());
  }
};

class ReorderTensor final : public Plan {
 public:
  explicit ReorderTensor(const char* reason) : Plan("core"), reason_(reason) {}
  std::string Describe() const override { return reason_; }
  bool SameAs(const Plan& other) const override {
    const auto* reorder = dynamic_cast<const ReorderTensor*>(&other);
    return reorder && std::strcmp(reorder->reason_, reason_) == 0;
  }
  void Run(const Execution& execution) const override {
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
    CountedReorder(to.device(), from.layout(), to.layout(), to.shape(), to.data_type(),
                   from.raw_data(), to.raw_data(), reason_);
  }

 private:
  const char* reason_;
};

}  // namespace

const PlanPtr& FillPlan() {
  static const PlanPtr& plan = *new PlanPtr(std::make_shared<Fill>());
  return plan;
}

const PlanPtr& CopyPlan() {
  static const PlanPtr& plan = *new PlanPtr(std::make_shared<Copy>());
  return plan;
}

const PlanPtr& MemoryCopyPlan() {
  static const PlanPtr& plan = *new PlanPtr(std::make_shared<MemoryCopy>());
  return plan;
}

PlanPtr ReorderPlan(const char* reason) { return std::make_shared<ReorderTensor>(reason); }

}  // namespace singa
