// Collectives on a stream of their own. Events order it with the device's stream. Captured ones
// need no second stream: their launches are nodes of the graph that nothing else comes after until
// Await.

#include "backend/cuda/nccl/group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/cuda/kernels/rank_sum.h"
#include "backend/cuda/nccl/ranks.h"
#include "backend/cuda/runtime/capture.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/runtime.h"
#include "core/graph/capture.h"
#include "core/tensor/round_up.h"
#include "core/tensor/stored_size.h"
#include "singa/core/error.h"

namespace singa::nccl {
namespace {

using cuda::CapturedLaunch;
using cuda::Piece;
namespace runtime = cuda::runtime;
using Clock = std::chrono::steady_clock;

/// Tensors and the ranks' shares of them begin at multiples of these in the buffer.
constexpr size_t kAlign = 16, kShareUnit = 256;

char* At(const Tensor& t) { return static_cast<char*>(t.raw_data()); }

class Mark {
 public:
  explicit Mark(Stream stream) : event_(runtime::NewEvent()) { runtime::Record(event_, stream); }
  ~Mark() {
    try {
      runtime::DeleteEvent(event_);
    } catch (const cuda::Error&) {
      // Errors of a failed device were reported before.
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  cuda::Event event() const { return event_; }

 private:
  cuda::Event event_;
};

using Launches = std::vector<CapturedLaunch>;

Launches Joined(Launches one, const Launches& other) {
  for (const CapturedLaunch launch : other)
    if (std::find(one.begin(), one.end(), launch) == one.end()) one.push_back(launch);
  return one;
}

class Group final : public DeviceGroup {
 public:
  Group(DevicePtr gpu, const std::string& id, int rank, int world_size,
        const std::function<void(double)>& check, size_t staging)
      : gpu_(std::move(gpu)), rank_(rank), world_(world_size), staging_bytes_(staging) {
    staging_ = static_cast<char*>(gpu_->Allocate(staging_bytes_));
    try {
      const Stream compute = cuda::StreamOf(*gpu_);
      stream_ = runtime::NewStream();
      // Work that used this memory before it was freed.
      runtime::QueueWait(Mark(compute).event(), stream_);
      if (world_ > 1) {
        Check<Unavailable>(TheLibrary().Problem().empty(), "NCCL", TheLibrary().Problem());
        Check(id.size() == Id().size(), "NCCL", "an identifier has ", id.size(), " bytes");
        Id handed;
        std::copy(id.begin(), id.end(), handed.begin());
        ranks_ = std::make_unique<Ranks>(handed, rank, world_size, check);
      }
    } catch (...) {
      Release();
      throw;
    }
  }
  ~Group() override { Release(); }

  uint64_t StartSum(std::span<const Tensor> tensors, size_t lists, double factor, bool ordered,
                    const std::string& where) override {
    const DType dtype = tensors[0].data_type();
    const bool own_order = ranks_ && !ordered && lists == 1 && SizeOf(dtype) >= 4;
    return Start(where, {tensors}, [&](Stream stream) {
      if (own_order) {
        std::vector<Ranks::Array> arrays;
        for (const Tensor& t : tensors)
          if (StoredBytes(t) > 0) arrays.push_back({At(t), StoredBytes(t) / SizeOf(dtype)});
        if (!arrays.empty()) ranks_->AllReduce(arrays, dtype, factor, stream);
      } else {
        QueueSum(tensors, lists, factor, stream);
      }
    });
  }

  uint64_t StartGather(const Tensor& own, const Tensor& all, const std::string& where) override {
    return Start(where, {{&own, 1}, {&all, 1}},
                 [&](Stream stream) { QueueGather(At(own), At(all), StoredBytes(own), stream); });
  }

  uint64_t StartBroadcast(std::span<const Tensor> tensors, int root,
                          const std::string& where) override {
    return Start(where, {tensors}, [&](Stream stream) {
      std::vector<Ranks::Part> parts;
      for (const Tensor& t : tensors)
        if (StoredBytes(t) > 0) parts.push_back({At(t), StoredBytes(t), root});
      if (ranks_ && !parts.empty()) ranks_->Broadcast(parts, stream);
    });
  }

  size_t StatisticsBytes(const Statistics& s) const override {
    return (static_cast<size_t>(world_) + (ranks_ ? 1 : 0)) * RowOf(s).bytes;
  }
  uint64_t StartStatistics(const Statistics& s, const std::string& where) override {
    return Start(where, {s.running, s.batch}, [&](Stream stream) { QueueStatistics(s, stream); });
  }

  void Await(uint64_t number) override {
    const auto found = tickets_.find(number);
    if (found == tickets_.end()) return;
    const Stream compute = cuda::StreamOf(*gpu_);
    const uint64_t capture = cuda::CaptureOf(*gpu_);
    const Ticket& ticket = found->second;
    if (ticket.capture != 0) {
      // Elsewhere the captured work has been launched on the device's stream.
      if (ticket.capture == capture)
        runtime::SetCapturesAfter(compute,
                                  Joined(runtime::CapturesAfter(compute), ticket.launches));
    } else {
      Check<NotCapturable>(capture == 0, "Await",
                           "it waits for a collective that was started before");
      runtime::QueueWait(ticket.done->event(), compute);
    }
    tickets_.erase(found);
  }
  void AwaitAll() noexcept override {
    try {
      while (!tickets_.empty()) Await(tickets_.begin()->first);
    } catch (const std::exception&) {
      tickets_.clear();  // the device has failed, which was reported
    }
  }

  bool capturing() const override { return cuda::CaptureOf(*gpu_) != 0; }
  void Launching(const std::string& where) override {
    Launched();
    launching_ = &Note(where);
  }
  void Launched() override {
    if (!launching_) return;
    const Stream compute = cuda::StreamOf(*gpu_);
    Queued(*std::exchange(launching_, nullptr), std::make_shared<Mark>(compute));
  }

  Oldest oldest() override {
    if (aborted_) return {};
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!running_.empty() && running_.front().done &&
           runtime::Reached(running_.front().done->event())) {
      running_.pop_front();
      oldest_since_ = Clock::now();
    }
    if (running_.empty()) return {};
    return {running_.front().where,
            std::chrono::duration<double>(Clock::now() - oldest_since_).count()};
  }
  std::string Problem() override { return ranks_ ? ranks_->Problem() : ""; }
  void Abort(const std::string& reason) noexcept override {
    if (aborted_.exchange(true)) return;
    cuda::FailNextWait(*gpu_, reason);
    if (ranks_) ranks_->Abort();
  }

 private:
  using MarkPtr = std::shared_ptr<Mark>;
  /// How later operations wait for a collective.
  struct Ticket {
    uint64_t capture;   // the capture that contains it; 0: none
    Launches launches;  // of the capture
    MarkPtr done;
  };
  struct Running {
    MarkPtr done;  // null: it is being queued
    std::string where;
  };

  /// Calls queue(stream), which uses the tensors, and lets its work run beside what is queued next.
  template <class Fn>
  uint64_t Start(const std::string& where, std::initializer_list<std::span<const Tensor>> tensors,
                 const Fn& queue) {
    const Stream compute = cuda::StreamOf(*gpu_);
    // Before the other stream waits for this one: this one may have to wait for tensors' elements.
    for (const std::span<const Tensor> list : tensors)
      for (const Tensor& t : list) t.raw_data();
    if (const uint64_t capture = cuda::CaptureOf(*gpu_)) {
      if (std::exchange(capture_, capture) != capture) {
        std::erase_if(tickets_, [](const auto& each) { return each.second.capture != 0; });
        last_.clear();
      }
      const Launches before = runtime::CapturesAfter(compute);
      // One after the other: they share the buffer, and NCCL wants one order on all ranks.
      runtime::SetCapturesAfter(compute, Joined(before, last_));
      queue(compute);
      last_ = runtime::CapturesAfter(compute);
      runtime::SetCapturesAfter(compute, before);
      tickets_[++number_] = {capture, last_, nullptr};
      return number_;
    }
    Launched();  // what was to be launched could not be captured
    // From now on, since queueing waits where the device is behind.
    Running& running = Note(where);
    runtime::QueueWait(Mark(compute).event(), stream_);
    queue(stream_);
    auto done = std::make_shared<Mark>(stream_);
    tickets_[++number_] = {0, {}, done};
    Queued(running, std::move(done));
    return number_;
  }

  Running& Note(const std::string& where) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (running_.empty()) oldest_since_ = Clock::now();
    return running_.emplace_back(nullptr, where);
  }
  void Queued(Running& running, MarkPtr done) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running.done = std::move(done);
  }

  void QueueGather(const char* own, char* all, size_t bytes, Stream stream) {
    if (bytes == 0) return;
    if (ranks_) {
      ranks_->AllGather(own, all, bytes, stream);
    } else if (own != all) {
      runtime::CopyWithin(all, own, bytes, stream);
    }
  }

  /// Sums in the order of OrderedSum, in chunks that fill the buffer: each rank gets its share of
  /// the chunk of all ranks' lists, adds, and gives the sum to all. That moves as many bytes as
  /// NCCL's own sum around a ring.
  void QueueSum(std::span<const Tensor> tensors, size_t lists, double factor, Stream stream) {
    const DType dtype = tensors[0].data_type();
    const size_t unit = SizeOf(dtype), count = tensors.size() / lists;
    const size_t world = static_cast<size_t>(world_), rank = static_cast<size_t>(rank_);
    std::vector<size_t> starts{0};  // of the tensors of a list, one after the other
    for (size_t i = 0; i < count; ++i)
      starts.push_back(starts.back() + RoundUp(StoredBytes(tensors[i]), kAlign));
    const size_t total = starts.back();
    const size_t most = staging_bytes_ / (2 * lists + 1) / world / kShareUnit * kShareUnit;
    Check(most > 0, "all_reduce", lists, " lists in each of ", world, " ranks are too many");
    for (size_t begin = 0; begin < total; begin += most * world) {
      const size_t bytes = std::min(most * world, total - begin);
      const size_t share = RoundUp(CeilDivide(bytes, world), kShareUnit), whole = share * world;
      char* const packed = staging_;                                   // (lists, whole)
      char* const terms = ranks_ ? staging_ + lists * whole : packed;  // (world, lists, share)
      char* const result = staging_ + 2 * lists * whole;               // (whole)
      // Calls fn(tensor's place, offset in the chunk, bytes) for the tensors of a list.
      const auto for_parts = [&](size_t list, const auto& fn) {
        for (size_t i = 0; i < count; ++i) {
          const size_t from = std::max(starts[i], begin);
          const size_t to = std::min(starts[i] + StoredBytes(tensors[i]), begin + bytes);
          if (from < to)
            fn(At(tensors[list * count + i]) + (from - starts[i]), from - begin, to - from);
        }
      };
      std::vector<Piece> pieces;
      for (size_t s = 0; s < lists; ++s)
        for_parts(s, [&](char* data, size_t offset, size_t size) {
          pieces.push_back({data, packed + s * whole + offset, size});
        });
      cuda::QueuePieces(pieces, unit, stream);
      if (ranks_) {
        std::vector<Ranks::Part> sent, received;
        for (size_t r = 0; r < world; ++r)
          for (size_t s = 0; s < lists; ++s) {
            sent.push_back({packed + s * whole + r * share, share, static_cast<int>(r)});
            received.push_back({terms + (r * lists + s) * share, share, static_cast<int>(r)});
          }
        ranks_->Exchange(sent, received, stream);
      }
      char* const own = result + rank * share;
      cuda::QueueOrderedSum(dtype, factor, terms, share, static_cast<int64_t>(world * lists),
                            static_cast<int64_t>(share / unit), own, stream);
      QueueGather(own, ranks_ ? result : own, share, stream);
      pieces.clear();
      for_parts(0, [&](char* data, size_t offset, size_t size) {
        pieces.push_back({result + offset, data, size});
      });
      cuda::QueuePieces(pieces, unit, stream);
    }
  }

  /// What a rank contributes to running statistics: mean and variance of each batch norm in each
  /// batch, then all counts.
  struct Row {
    std::vector<size_t> starts;  // of the mean or variance of each batch norm in a batch
    size_t batch;                // bytes of a batch
    size_t counts;               // where they begin
    size_t bytes;
  };
  static Row RowOf(const Statistics& s) {
    Row row{};
    const size_t batches = s.counts.size() / s.factors.size();
    for (const Tensor& t : s.running) {
      row.starts.push_back(row.batch);
      row.batch += RoundUp(static_cast<size_t>(t.bytes()), kAlign);
    }
    row.counts = batches * row.batch;
    row.bytes = RoundUp(row.counts + s.counts.size_bytes(), kShareUnit);
    return row;
  }

  void QueueStatistics(const Statistics& s, Stream stream) {
    const Row row = RowOf(s);
    const size_t norms = s.factors.size(), batches = s.counts.size() / norms;
    char* const own = static_cast<char*>(s.workspace);
    char* const all = ranks_ ? own + row.bytes : own;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < s.batch.size(); ++i) {
      const size_t place = i / s.running.size() * row.batch + row.starts[i % s.running.size()];
      pieces.push_back({At(s.batch[i]), own + place, static_cast<size_t>(s.batch[i].bytes())});
    }
    cuda::QueuePieces(pieces, SizeOf(s.running[0].data_type()), stream);
    cuda::QueueNumbers(s.counts, reinterpret_cast<int64_t*>(own + row.counts), stream);
    QueueGather(own, all, row.bytes, stream);
    for (size_t i = 0; i < norms; ++i) {
      const Tensor &mean = s.running[2 * i], &var = s.running[2 * i + 1];
      cuda::QueueRunningUpdate(mean.data_type(),
                               {.channels = mean.size(),
                                .factor = s.factors[i],
                                .ranks = world_,
                                .batches = static_cast<int64_t>(batches),
                                .row = row.bytes,
                                .step = row.batch,
                                .mean = all + row.starts[2 * i],
                                .var = all + row.starts[2 * i + 1],
                                .counts = reinterpret_cast<const int64_t*>(all + row.counts) + i,
                                .count_step = static_cast<int64_t>(norms),
                                .running_mean = At(mean),
                                .running_var = At(var)},
                               stream);
    }
  }

  void Release() noexcept {
    try {
      runtime::Use(gpu_->id());
      if (stream_ && !aborted_) runtime::Synchronize(stream_);
      ranks_.reset();
      tickets_.clear();
      running_.clear();
      if (stream_) runtime::DeleteStream(stream_);
    } catch (const cuda::Error&) {
      // Errors of a failed device were reported before.
    }
    if (!gpu_->closed()) gpu_->Free(staging_, staging_bytes_);
  }

  DevicePtr gpu_;
  const int rank_, world_;
  const size_t staging_bytes_;
  char* staging_ = nullptr;
  Stream stream_ = nullptr;
  std::unique_ptr<Ranks> ranks_;  // null with one rank
  uint64_t number_ = 0;           // of the last ticket
  std::map<uint64_t, Ticket> tickets_;
  uint64_t capture_ = 0;  // the capture that `last_` belongs to
  Launches last_;         // of the last collective in it
  std::mutex mutex_;
  std::deque<Running> running_;  // in the order in which they run
  Running* launching_ = nullptr;
  Clock::time_point oldest_since_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::string NewGroupId() {
  Library& library = TheLibrary();
  Check<Unavailable>(library.Problem().empty(), "NCCL", library.Problem());
  Id id;
  if (library.GetUniqueId(&id) == Result::kFailed)
    throw cuda::Error("NCCL: cannot make an identifier: " + library.LastError(nullptr));
  return {id.begin(), id.end()};
}

DeviceGroupPtr JoinGroup(const DevicePtr& gpu, const std::string& id, int rank, int world_size,
                         const std::function<void(double)>& check, size_t staging) {
  return std::make_shared<Group>(gpu, id, rank, world_size, check, staging);
}

}  // namespace singa::nccl
