#pragma once

// What the operations of one Reduction share.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/stored_size.h"
#include "distributed/collectives/communicator.h"
#include "singa/core/plan.h"

namespace singa {

struct Bucket {
  CommunicatorPtr communicator;
  std::string text;  ///< what ranks agree about
  std::string name;
  size_t shards;
  double factor;
  std::vector<int64_t> owners{};  ///< the rank of each tensor; empty: all ranks
  bool ordered = true;            ///< on GPUs: the sum has the bits of the CPU
  uint64_t ticket = 0;            // of the present run

  bool Equals(const Bucket& other) const {
    return communicator == other.communicator && text == other.text && shards == other.shards &&
           factor == other.factor && owners == other.owners && ordered == other.ordered;
  }
};
using BucketPtr = std::shared_ptr<Bucket>;

/// A plan that belongs to a bucket; `Self` is the derived class.
template <class Self>
class BucketPlan : public Plan {
 public:
  explicit BucketPlan(BucketPtr bucket) : Plan("distributed"), bucket_(std::move(bucket)) {}
  bool SameAs(const Plan& other) const override {
    const auto* same = dynamic_cast<const Self*>(&other);
    return same && bucket_->Equals(*same->bucket_);
  }

 protected:
  BucketPtr bucket_;
};

/// Waits for what the thread of the communicator runs.
class WaitPlan final : public BucketPlan<WaitPlan> {
 public:
  using BucketPlan::BucketPlan;
  void Run(const Execution&) const override { bucket_->communicator->impl().Wait(bucket_->ticket); }
};

/// What updates of running statistics share.
struct Norms {
  CommunicatorPtr communicator;
  std::vector<int64_t> counts;  // of each shard and batch norm
  std::vector<double> factors;  // of each batch norm

  bool operator==(const Norms& other) const = default;
};

/// "name and 3 more", or without names "4 tensors".
std::string TitleOf(const std::vector<std::string>& names, size_t count);

/// Checks the ranks of `count` tensors.
void CheckOwners(const char* op, const std::vector<int64_t>& owners, size_t count, int world_size);
/// ", to ranks 0 2 1", or "" for none.
std::string DescribeOwners(const std::vector<int64_t>& owners);

/// Whether each tensor has the same layout in all lists; `tensors` are lists of `count`, one after
/// the other.
inline bool ListsLieAlike(std::span<const Tensor> tensors, size_t count) {
  for (size_t i = count; i < tensors.size(); ++i)
    if (!SameLayout(tensors[i].layout(), tensors[i % count].layout())) return false;
  return true;
}

}  // namespace singa
