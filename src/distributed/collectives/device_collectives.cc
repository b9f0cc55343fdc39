#include "distributed/collectives/device_collectives.h"

#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/graph/capture.h"
#include "singa/core/device.h"
#include "singa/core/error.h"
#include "singa/core/node.h"

namespace singa {
namespace {

using distributed::RankGroup;

using Tensors = std::span<const Tensor>;

/// A collective as ranks describe it.
struct Description {
  CommunicatorPtr communicator;
  std::string op, name, text;
  bool operator==(const Description& other) const = default;
};

/// A plan that starts a collective.
class DevicePlan : public Plan, public JointPlan {
 public:
  explicit DevicePlan(Description description)
      : Plan("distributed"), description_(std::move(description)) {}

  std::string Text(const Node&) const override { return description_.op + ' ' + description_.text; }
  uint64_t Layouts(const Node& node) const override { return HashLayouts(node.inputs); }
  uint64_t AgreeToLaunch(Device& device, const std::string& text, uint64_t layouts,
                         uint64_t captured) const override {
    const DeviceGroupPtr devices = impl().GroupOn(device);
    devices->AwaitAll();  // one order for all collectives
    const uint64_t agreed = impl().AgreeToLaunch(text, layouts * 31 + captured);
    if (agreed != 0) devices->Launching("a recorded step");
    return agreed;
  }
  void Launched(Device& device) const override { impl().GroupOn(device)->Launched(); }

 protected:
  Communicator::Impl& impl() const { return description_.communicator->impl(); }
  bool Describes(const DevicePlan& other) const { return description_ == other.description_; }

  /// Calls start(devices, same_layouts, where) once the ranks have agreed. While this thread
  /// captures, they have.
  template <class Start>
  void Queue(const Execution& execution, const Start& start) const {
    const DeviceGroupPtr devices = impl().GroupOn(execution.device);
    if (!impl().group || devices->capturing()) return start(*devices, true, description_.op);
    impl().Run({.op = description_.op,
                .name = description_.name,
                .text = description_.text,
                .layouts = HashLayouts(execution.inputs),
                .run = [&](RankGroup& ranks, bool same_layouts, const std::string& where) {
                  try {
                    start(*devices, same_layouts, where);
                  } catch (const std::exception& error) {
                    // All ranks raise it. It has no effect if they have failed before.
                    throw std::runtime_error(
                        detail::Message("distributed", "rank ", ranks.rank(), ": ", error.what()));
                  }
                }});
  }

 private:
  Description description_;
};

class SumPlan final : public DevicePlan {
 public:
  SumPlan(BucketPtr bucket, bool waits)
      : DevicePlan({bucket->communicator, "all_reduce", bucket->name, bucket->text}),
        bucket_(std::move(bucket)),
        waits_(waits) {}

  void Run(const Execution& execution) const override {
    Queue(execution, [&](DeviceGroup& devices, bool same_layouts, const std::string& where) {
      // With the layouts of all ranks equal, all ranks come to the same answer.
      if (same_layouts && ListsLieAlike(execution.inputs, execution.outputs.size())) {
        bucket_->ticket = Start(devices, execution.inputs, where);
        if (waits_) devices.Await(bucket_->ticket);
      } else {
        SumPlain(devices, execution, where);
        bucket_->ticket = 0;
      }
    });
  }
  bool SameAs(const Plan& other) const override {
    const auto* same = dynamic_cast<const SumPlan*>(&other);
    return same && waits_ == same->waits_ && bucket_->Equals(*same->bucket_);
  }

 private:
  uint64_t Start(DeviceGroup& devices, Tensors tensors, const std::string& where) const {
    return devices.StartSum(tensors, bucket_->shards, bucket_->factor, bucket_->ordered, where);
  }
  /// Where kernels chose different layouts, ranks add row-major copies.
  void SumPlain(DeviceGroup& devices, const Execution& execution, const std::string& where) const {
    std::vector<Tensor> plain;
    for (const Tensor& t : execution.inputs) plain.push_back(t.layout() ? t.Plain() : t);
    devices.Await(Start(devices, plain, where));
    for (size_t i = 0; i < execution.outputs.size(); ++i) {
      const Tensor& to = execution.outputs[i];
      if (!to.layout()) continue;
      const Tensor packed = plain[i].ToLayout(to.layout());
      execution.device.CopyBytes(to.raw_data(), packed.raw_data(), StoredBytes(to));
    }
  }

  BucketPtr bucket_;
  bool waits_;
};

class SumWaitPlan final : public BucketPlan<SumWaitPlan> {
 public:
  using BucketPlan::BucketPlan;
  void Run(const Execution& execution) const override {
    bucket_->communicator->impl().GroupOn(execution.device)->Await(bucket_->ticket);
  }
};

class GatherPlan final : public DevicePlan {
 public:
  using DevicePlan::DevicePlan;
  void Run(const Execution& execution) const override {
    Queue(execution, [&](DeviceGroup& devices, bool, const std::string& where) {
      devices.Await(devices.StartGather(execution.inputs[0], execution.outputs[0], where));
    });
  }
  bool SameAs(const Plan& other) const override {
    const auto* same = dynamic_cast<const GatherPlan*>(&other);
    return same && Describes(*same);
  }
};

class BroadcastPlan final : public DevicePlan {
 public:
  BroadcastPlan(Description description, int root)
      : DevicePlan(std::move(description)), root_(root) {}
  void Run(const Execution& execution) const override {
    Queue(execution, [&](DeviceGroup& devices, bool, const std::string& where) {
      devices.Await(devices.StartBroadcast(execution.inputs, root_, where));
    });
  }
  bool SameAs(const Plan& other) const override {
    const auto* same = dynamic_cast<const BroadcastPlan*>(&other);
    return same && root_ == same->root_ && Describes(*same);
  }

 private:
  int root_;
};

class DeviceStatisticsPlan final : public DevicePlan {
 public:
  DeviceStatisticsPlan(Norms norms, const std::string& text, Tensors inputs)
      : DevicePlan({norms.communicator, "all_gather", "running statistics", text}),
        norms_(std::move(norms)),
        bytes_(impl().GroupOn(*inputs[0].device())->StatisticsBytes(Of(inputs, nullptr))) {}
  size_t workspace_bytes() const override { return bytes_; }
  void Run(const Execution& execution) const override {
    Queue(execution, [&](DeviceGroup& devices, bool, const std::string& where) {
      devices.Await(devices.StartStatistics(Of(execution.inputs, execution.workspace), where));
    });
  }
  bool SameAs(const Plan& other) const override {
    const auto* same = dynamic_cast<const DeviceStatisticsPlan*>(&other);
    return same && norms_ == same->norms_;
  }

 private:
  DeviceGroup::Statistics Of(Tensors inputs, void* workspace) const {
    const size_t running = 2 * norms_.factors.size();
    return {inputs.first(running), inputs.subspan(running), norms_.counts, norms_.factors,
            workspace};
  }

  Norms norms_;
  size_t bytes_;
};

}  // namespace

PlanPtr DeviceSumStart(const BucketPtr& bucket) { return std::make_shared<SumPlan>(bucket, false); }
PlanPtr DeviceSumWait(const BucketPtr& bucket) { return std::make_shared<SumWaitPlan>(bucket); }
PlanPtr DeviceSum(const BucketPtr& bucket) { return std::make_shared<SumPlan>(bucket, true); }

void GatherOnDevices(const CommunicatorPtr& communicator, const Tensor& own, const Tensor& all) {
  const std::vector<Tensor> inputs{own}, outputs{all};
  const Description description{communicator, "all_gather", "", DescribeTensors(inputs, {}, 1)};
  own.device()->Exec("AllGather", std::make_shared<GatherPlan>(description), inputs, outputs);
}

void BroadcastOnDevices(const CommunicatorPtr& communicator, const std::vector<Tensor>& tensors,
                        int root, const std::vector<std::string>& names) {
  const std::string from = "from rank " + std::to_string(root);
  const Description description{communicator, "broadcast", from,
                                from + '\n' + DescribeTensors(tensors, names, tensors.size())};
  const auto plan = std::make_shared<BroadcastPlan>(description, root);
  // The tensors of the root do not change.
  const bool changes = communicator->global_rank != root;
  tensors[0].device()->Exec("Broadcast", plan, tensors, changes ? tensors : std::vector<Tensor>());
}

void UpdateStatisticsOnDevices(const Norms& norms, const std::string& text,
                               const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& running) {
  inputs[0].device()->Exec("UpdateStatistics",
                           std::make_shared<DeviceStatisticsPlan>(norms, text, inputs), inputs,
                           running);
}

}  // namespace singa
