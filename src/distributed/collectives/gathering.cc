// The all-gather of tensors in place, as operations, which recorded steps contain.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/hidden.h"
#include "distributed/collectives/bucket.h"
#include "distributed/collectives/collectives.h"
#include "singa/core/device.h"
#include "singa/core/error.h"

namespace singa {

using distributed::ByteStream;
using distributed::RankGroup;

namespace {

/// Where layouts differ between ranks, they exchange row-major copies.
void Gather(RankGroup& group, const std::vector<Tensor>& tensors,
            const std::vector<int64_t>& owners, bool as_stored, const std::string& where) {
  std::vector<Tensor> moved;
  std::vector<ByteStream> parts(static_cast<size_t>(group.world_size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = moved.emplace_back(as_stored ? tensors[i] : tensors[i].Plain());
    if (t.size() > 0) parts[static_cast<size_t>(owners[i])].Add(t.raw_data(), StoredBytes(t));
  }
  distributed::GatherParts(group, parts, where);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (as_stored || !tensors[i].layout() || owners[i] == group.rank()) continue;
    const Tensor packed = moved[i].ToLayout(tensors[i].layout());
    std::memcpy(tensors[i].raw_data(), packed.raw_data(), StoredBytes(packed));
  }
}

class GatherStart final : public BucketPlan<GatherStart> {
 public:
  using BucketPlan::BucketPlan;
  void Run(const Execution& execution) const override {
    std::vector<Tensor> tensors(execution.inputs.begin(), execution.inputs.end());
    Collective collective{.op = "all_gather",
                          .name = bucket_->name,
                          .text = bucket_->text,
                          .layouts = HashLayouts(tensors)};
    for (const Tensor& t : tensors) collective.bytes += StoredBytes(t);
    // It does not hold the communicator, whose thread must not be the last to let go of it.
    collective.run = [owners = bucket_->owners, tensors = std::move(tensors)](
                         RankGroup& group, bool same_layouts, const std::string& where) {
      Gather(group, tensors, owners, same_layouts, where);
    };
    bucket_->ticket = bucket_->communicator->impl().Start(std::move(collective));
  }
};

}  // namespace

struct SINGA_HIDDEN Gathering::Impl {
  void Exec(const char* op, const PlanPtr& plan) const {
    if (plan) tensors[0].device()->Exec(op, plan, tensors, tensors);
  }

  std::vector<Tensor> tensors;
  PlanPtr start, wait;  // null with one rank
};

Gathering::Gathering(CommunicatorPtr communicator, const std::vector<Tensor>& tensors,
                     const std::vector<std::string>& names, const std::vector<int64_t>& owners)
    : impl_(std::make_unique<Impl>()) {
  const char* op = "all_gather";
  const size_t count = tensors.size();
  Check(communicator != nullptr, op, "there is no communicator");
  Check(count > 0, op, "there are no tensors");
  Check(names.empty() || names.size() == count, op, count, " tensors have ", names.size(),
        " names");
  for (const Tensor& t : tensors) {
    Check(!t.empty(), op, "a tensor is empty (None)");
    Check(t.device()->kind() == DeviceKind::kCpu && t.device() == tensors[0].device(), op,
          "tensors must be on one CPU device, got ", tensors[0], " and ", t);
    Check(t.layout() || t.is_contiguous(), op, "tensors must be contiguous, got ", t);
  }
  CheckOwners(op, owners, count, communicator->world_size);
  impl_->tensors = tensors;
  const auto bucket = std::make_shared<Bucket>();
  bucket->text = std::to_string(count) + " tensors" + DescribeOwners(owners) + '\n' +
                 DescribeTensors(tensors, names, count);
  bucket->name = TitleOf(names, count);
  bucket->shards = 1;
  bucket->factor = 1;
  bucket->owners = owners;
  bucket->communicator = std::move(communicator);
  if (!bucket->communicator->impl().group) return;
  impl_->start = std::make_shared<GatherStart>(bucket);
  impl_->wait = std::make_shared<WaitPlan>(bucket);
}

Gathering::~Gathering() = default;

void Gathering::Start() { impl_->Exec("AllGatherStart", impl_->start); }
void Gathering::Wait() { impl_->Exec("AllGatherWait", impl_->wait); }

}  // namespace singa
