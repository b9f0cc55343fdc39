// All-reduces and updates of running statistics as operations, which recorded steps contain.

#include <cstring>
#include <sstream>
#include <utility>

#include "core/hidden.h"
#include "distributed/collectives/bucket.h"
#include "distributed/collectives/collectives.h"
#include "distributed/collectives/device_collectives.h"
#include "distributed/collectives/ordered_sum.h"
#include "model/operation/batchnorm/spec.h"
#include "singa/core/device.h"
#include "singa/core/error.h"
#include "singa/dispatch/plan_cache.h"

namespace singa {

using distributed::ByteStream;
using distributed::RankGroup;

namespace {

constexpr int kMostShards = 1024;

/// What a rank adds, and which results it takes.
struct Terms {
  size_t shards;
  double factor;
  std::vector<int64_t> owners;

  bool Takes(size_t tensor, int rank) const { return owners.empty() || owners[tensor] == rank; }
};

void Reduce(RankGroup& group, const std::vector<Tensor>& tensors, const Terms& terms,
            const std::string& where) {
  std::vector<ByteStream> shards(terms.shards);
  ByteStream result;
  const size_t count = tensors.size() / terms.shards;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].size() == 0) continue;
    const size_t bytes = StoredBytes(tensors[i]);
    shards[i / count].Add(tensors[i].raw_data(), bytes);
    if (i >= count) continue;
    if (terms.Takes(i, group.rank())) {
      result.Add(tensors[i].raw_data(), bytes);
    } else {
      result.AddGap(bytes);
    }
  }
  distributed::AllReduce(group, shards, tensors[0].data_type(), terms.factor, result, where);
}

/// Where kernels chose different layouts, ranks add row-major copies.
void ReducePlain(RankGroup& group, const std::vector<Tensor>& tensors, const Terms& terms,
                 const std::string& where) {
  std::vector<Tensor> plain;
  for (const Tensor& t : tensors) plain.push_back(t.layout() ? t.Plain() : t);
  Reduce(group, plain, terms, where);
  for (size_t i = 0; i < tensors.size() / terms.shards; ++i)
    if (tensors[i].layout() && terms.Takes(i, group.rank())) {
      const Tensor packed = plain[i].ToLayout(tensors[i].layout());
      std::memcpy(tensors[i].raw_data(), packed.raw_data(), StoredBytes(packed));
    }
}

Collective CollectiveOf(const Bucket& bucket, const Execution& execution) {
  std::vector<Tensor> tensors(execution.inputs.begin(), execution.inputs.end());
  uint64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += StoredBytes(t);
  Collective collective{.op = bucket.owners.empty() ? "all_reduce" : "reduce_scatter",
                        .name = bucket.name,
                        .text = bucket.text,
                        .layouts = HashLayouts(tensors),
                        .bytes = bytes};
  // It does not hold the communicator, whose thread must not be the last to let go of it.
  collective.run = [terms = Terms{bucket.shards, bucket.factor, bucket.owners},
                    tensors = std::move(tensors)](RankGroup& group, bool same_layouts,
                                                  const std::string& where) {
    // With the layouts of all ranks equal, all ranks come to the same answer.
    const bool as_stored = same_layouts && ListsLieAlike(tensors, tensors.size() / terms.shards);
    (as_stored ? Reduce : ReducePlain)(group, tensors, terms, where);
  };
  return collective;
}

class StartPlan final : public BucketPlan<StartPlan> {
 public:
  using BucketPlan::BucketPlan;
  void Run(const Execution& execution) const override {
    bucket_->ticket = bucket_->communicator->impl().Start(CollectiveOf(*bucket_, execution));
  }
};

class RunPlan final : public BucketPlan<RunPlan> {
 public:
  using BucketPlan::BucketPlan;
  void Run(const Execution& execution) const override {
    bucket_->communicator->impl().Run(CollectiveOf(*bucket_, execution));
  }
};

/// With one rank: the sum of its shards.
class LocalSumPlan final : public BucketPlan<LocalSumPlan> {
 public:
  using BucketPlan::BucketPlan;
  void Run(const Execution& execution) const override {
    const size_t count = execution.outputs.size();
    std::vector<const void*> terms(bucket_->shards);
    for (size_t i = 0; i < count; ++i) {
      const Tensor& to = execution.outputs[i];
      if (to.size() == 0) continue;
      std::vector<Tensor> alive;
      for (size_t s = 0; s < bucket_->shards; ++s) {
        const Tensor& term = execution.inputs[s * count + i];
        alive.push_back(SameLayout(term.layout(), to.layout()) ? term : term.ToLayout(to.layout()));
        terms[s] = alive.back().raw_data();
      }
      const size_t elements = StoredBytes(to) / SizeOf(to.data_type());
      distributed::OrderedSum(to.data_type(), bucket_->factor, terms.data(),
                              static_cast<int64_t>(terms.size()), static_cast<int64_t>(elements),
                              to.raw_data());
    }
  }
};

}  // namespace

struct SINGA_HIDDEN Reduction::Impl {
  struct Part {
    const char* op;
    PlanPtr plan;  // null: there is nothing to do
  };
  void Exec(const Part& part) const {
    if (part.plan) tensors[0].device()->Exec(part.op, part.plan, tensors, results);
  }

  BucketPtr bucket;
  std::vector<Tensor> tensors, results;
  Part start, wait, run;
};

Reduction::Reduction(CommunicatorPtr communicator, const std::vector<Tensor>& tensors,
                     const std::vector<std::string>& names, int shards, double factor,
                     const std::vector<int64_t>& owners)
    : impl_(std::make_unique<Impl>()) {
  const char* op = "all_reduce";
  Check(communicator != nullptr, op, "there is no communicator");
  Check(shards >= 1 && shards <= kMostShards, op, "shards must be from 1 to ", kMostShards,
        ", got ", shards);
  Check(!tensors.empty() && tensors.size() % static_cast<size_t>(shards) == 0, op, tensors.size(),
        " tensors are not ", shards, " equal lists");
  const size_t count = tensors.size() / static_cast<size_t>(shards);
  Check(names.empty() || names.size() == count, op, count, " tensors have ", names.size(),
        " names");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    Check(!t.empty(), op, "tensor ", i, " is empty (None)");
    Check(t.device() == tensors[0].device(), op, "tensors must be on one device, got ", tensors[0],
          " and ", t);
    Check(t.layout() || t.is_contiguous(), op, "tensors must be contiguous, got ", t);
    Check(t.data_type() == tensors[0].data_type(), op, "tensors must have one type, got ",
          tensors[0], " and ", t);
    Check(t.shape() == tensors[i % count].shape(), op, "shards must have equal shapes, got ",
          tensors[i % count], " and ", t);
  }
  if (!owners.empty()) CheckOwners(op, owners, count, communicator->world_size);
  Check<TypeError>(distributed::HasOrderedSum(tensors[0].data_type()), op,
                   "elements must be floats, int32 or int64, got ", tensors[0]);
  const bool integers = tensors[0].data_type() == kInt32 || tensors[0].data_type() == kInt64;
  Check(!integers || factor == 1, op, "the factor of integers must be 1, got ", factor);
  const bool on_cpu = tensors[0].device()->kind() == DeviceKind::kCpu, scatters = !owners.empty();
  const bool ordered = on_cpu || IsDeterministic();
  std::ostringstream text;
  text << "factor " << factor << ", " << shards << " shards in each rank, " << count << " tensors"
       << (on_cpu    ? ""
           : ordered ? " on GPUs"
                     : " on GPUs, in any order")
       << DescribeOwners(owners) << '\n';
  impl_->bucket = std::make_shared<Bucket>();
  impl_->bucket->text = text.str() + DescribeTensors(tensors, names, count);
  impl_->bucket->name = TitleOf(names, count);
  impl_->bucket->shards = static_cast<size_t>(shards);
  impl_->bucket->factor = factor;
  impl_->bucket->owners = owners;
  impl_->bucket->ordered = ordered;
  impl_->bucket->communicator = std::move(communicator);
  impl_->tensors = tensors;
  impl_->results.assign(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(count));
  const BucketPtr& bucket = impl_->bucket;
  if (!on_cpu) {
    impl_->start = {"AllReduceStart", DeviceSumStart(bucket)};
    impl_->wait = {"AllReduceWait", DeviceSumWait(bucket)};
    impl_->run = {"AllReduce", DeviceSum(bucket)};
  } else if (bucket->communicator->impl().group) {
    impl_->start = {scatters ? "ReduceScatterStart" : "AllReduceStart",
                    std::make_shared<StartPlan>(bucket)};
    impl_->wait = {scatters ? "ReduceScatterWait" : "AllReduceWait",
                   std::make_shared<WaitPlan>(bucket)};
    impl_->run = {scatters ? "ReduceScatter" : "AllReduce", std::make_shared<RunPlan>(bucket)};
  } else {
    impl_->start = impl_->run = {"AllReduce", std::make_shared<LocalSumPlan>(bucket)};
    impl_->wait = {"AllReduceWait", nullptr};
  }
}

Reduction::~Reduction() = default;

void Reduction::Start() { impl_->Exec(impl_->start); }
void Reduction::Wait() { impl_->Exec(impl_->wait); }
void Reduction::Run() { impl_->Exec(impl_->run); }

// Running statistics.

namespace {

template <class T>
void UpdateAll(const Norms& norms, std::span<const Tensor> running, const char* batch,
               std::span<const int64_t> counts) {
  for (size_t i = 0; i < norms.factors.size(); ++i) {
    const int64_t channels = running[2 * i].size();
    const T* mean = reinterpret_cast<const T*>(batch);
    UpdateRunningStatistics<T>(channels, counts[i], norms.factors[i], mean, mean + channels,
                               static_cast<T*>(running[2 * i].raw_data()),
                               static_cast<T*>(running[2 * i + 1].raw_data()));
    batch += 2 * channels * static_cast<int64_t>(sizeof(T));
  }
}

/// What ranks agree about.
std::string DescribeNorms(const Norms& norms, std::span<const Tensor> running) {
  const size_t count = norms.factors.size();
  std::ostringstream text;
  text << norms.counts.size() / count << " shards in each rank\n";
  for (size_t i = 0; i < count; ++i)
    text << "batch norm " << i << ": " << running[2 * i].size() << " channels, momentum "
         << norms.factors[i] << '\n';
  return text.str();
}

class StatisticsPlan final : public Plan {
 public:
  explicit StatisticsPlan(Norms norms) : Plan("distributed"), norms_(std::move(norms)) {}

  void Run(const Execution& execution) const override {
    const std::span<const Tensor> running = execution.outputs;
    const size_t norms = norms_.factors.size(), shards = norms_.counts.size() / norms;
    ByteStream own;
    std::vector<int64_t> counts = norms_.counts;
    for (size_t s = 0; s < shards; ++s) {
      for (size_t i = 0; i < 2 * norms; ++i) {
        const Tensor& t = execution.inputs[(s + 1) * 2 * norms + i];
        own.Add(t.raw_data(), static_cast<size_t>(t.bytes()));
      }
    }
    // The counts follow all statistics.
    const size_t values = own.bytes();
    own.Add(counts.data(), counts.size() * sizeof(int64_t));
    const size_t world = static_cast<size_t>(norms_.communicator->world_size);
    std::vector<char> all(world * own.bytes());
    if (!norms_.communicator->impl().group) {
      own.Read(0, own.bytes(), all.data());
    } else {
      Collective collective{
          .op = "all_gather", .name = "running statistics", .text = DescribeNorms(norms_, running)};
      collective.run = [&](RankGroup& group, bool, const std::string& where) {
        distributed::AllGather(
            group, own,
            [&](int rank, size_t begin, size_t end, const char* data) {
              std::memcpy(all.data() + static_cast<size_t>(rank) * own.bytes() + begin, data,
                          end - begin);
            },
            where);
      };
      norms_.communicator->impl().Run(std::move(collective));
    }
    for (size_t r = 0; r < world; ++r) {
      const char* batch = all.data() + r * own.bytes();
      std::memcpy(counts.data(), batch + values, counts.size() * sizeof(int64_t));
      for (size_t s = 0; s < shards; ++s) {
        const std::span<const int64_t> of_shard(counts.data() + s * norms, norms);
        const char* from = batch + s * (values / shards);
        if (running[0].data_type() == kFloat64) {
          UpdateAll<double>(norms_, running, from, of_shard);
        } else {
          UpdateAll<float>(norms_, running, from, of_shard);
        }
      }
    }
  }
  bool SameAs(const Plan& other) const override {
    const auto* same = dynamic_cast<const StatisticsPlan*>(&other);
    return same && norms_ == same->norms_;
  }

 private:
  Norms norms_;
};

}  // namespace

void UpdateStatistics(const CommunicatorPtr& communicator, const std::vector<Tensor>& running,
                      const std::vector<Tensor>& batch, const std::vector<int64_t>& counts,
                      const std::vector<double>& factors) {
  const char* op = "UpdateStatistics";
  Check(communicator != nullptr, op, "there is no communicator");
  const size_t norms = factors.size();
  Check(norms > 0 && running.size() == 2 * norms, op, running.size(), " running statistics for ",
        norms, " batch norms");
  Check(!counts.empty() && counts.size() % norms == 0 && batch.size() == 2 * counts.size(), op,
        counts.size(), " counts and ", batch.size(), " statistics for ", norms, " batch norms");
  std::vector<Tensor> inputs = running;
  inputs.insert(inputs.end(), batch.begin(), batch.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    Check(!t.empty(), op, "a tensor is empty (None)");
    const Tensor& like = running[i % (2 * norms)];
    Check(t.data_type() == running[0].data_type(), op, "tensors must have one type, got ",
          running[0], " and ", t);
    Check(t.data_type() == kFloat32 || t.data_type() == kFloat64, op,
          "tensors must be float32 or float64, got ", t);
    Check(t.size() == like.size() && t.is_contiguous() && t.device() == running[0].device(), op,
          "tensors must be contiguous, on one device and of ", like.size(), " channels, got ", t);
  }
  const Norms all{communicator, counts, factors};
  const DevicePtr device = running[0].device();
  if (device->kind() != DeviceKind::kCpu) {
    UpdateStatisticsOnDevices(all, DescribeNorms(all, running), inputs, running);
  } else {
    device->Exec(op, std::make_shared<StatisticsPlan>(all), inputs, running);
  }
}

}  // namespace singa
