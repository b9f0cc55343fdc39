#pragma once

// Collectives between devices of several processes, the ranks of a job. A Device that has them is a
// DeviceGroups, too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "singa/core/export.h"
#include "singa/core/tensor.h"

namespace singa {

/// A rank's device among those of all ranks. Collectives are queued like operations, and nobody
/// waits for them. All ranks queue the same ones in the same order; the caller has seen to that.
/// Tensors are contiguous, or in one opaque layout on all ranks.
///
/// Collectives run beside the operations that are queued behind them, until Await. While this
/// thread captures the device's work, they are captured with it. `where` names a collective in
/// errors.
class SINGA_API DeviceGroup {
 public:
  virtual ~DeviceGroup();

  /// Starts the sums of the tensors over all ranks. `tensors` are lists of this rank, equal in
  /// length and types, one after the other; the results replace those of the first list. `ordered`:
  /// in the order of OrderedSum, rank by rank and list by list, with the bits of accumulation on
  /// this device; otherwise, where the library can, in its own order. Returns a ticket for Await.
  virtual uint64_t StartSum(std::span<const Tensor> tensors, size_t lists, double factor,
                            bool ordered, const std::string& where) = 0;
  /// Starts the collection of each rank's `own` in `all`, (world_size, ...).
  virtual uint64_t StartGather(const Tensor& own, const Tensor& all, const std::string& where) = 0;
  /// Starts copies of `root`'s tensors to the other ranks.
  virtual uint64_t StartBroadcast(std::span<const Tensor> tensors, int root,
                                  const std::string& where) = 0;
  /// Updates of running statistics of batch norms by the batches of all ranks, in order: see
  /// UpdateStatistics of singa/distributed/communicator.h.
  struct Statistics {
    std::span<const Tensor> running, batch;
    std::span<const int64_t> counts;
    std::span<const double> factors;
    /// Memory on the device; StatisticsBytes() says how much.
    void* workspace;
  };
  virtual size_t StatisticsBytes(const Statistics& statistics) const = 0;
  virtual uint64_t StartStatistics(const Statistics& statistics, const std::string& where) = 0;
  /// Operations that are queued from now on wait for what was started. Does nothing if work that is
  /// queued by now does so already. Raises NotCapturable if this thread captures, and the
  /// collective was started before.
  virtual void Await(uint64_t ticket) = 0;
  /// The same for all that was started and not awaited. Raises nothing.
  virtual void AwaitAll() noexcept = 0;

  /// Whether this thread captures the device's work.
  virtual bool capturing() const = 0;
  /// To be called before captured collectives are launched, and when they have been.
  virtual void Launching(const std::string& where) = 0;
  virtual void Launched() = 0;

  /// The oldest collective that has not run yet, and the seconds for which it has been that.
  struct Oldest {
    std::string where;  ///< empty: all have run, or were given up
    double seconds = 0;
  };
  virtual Oldest oldest() = 0;
  /// An error of collectives that the library has reported meanwhile; empty: none.
  virtual std::string Problem() = 0;
  /// Gives up what has not run. The next call that waits for the device raises `reason`. Any thread
  /// may call it.
  virtual void Abort(const std::string& reason) noexcept = 0;
};
using DeviceGroupPtr = std::shared_ptr<DeviceGroup>;

class SINGA_API DeviceGroups {
 public:
  virtual ~DeviceGroups();
  /// An identifier of kGroupId bytes, to be made on one rank and handed to all. Raises Unavailable
  /// if the library for collectives is missing.
  static constexpr size_t kGroupId = 128;
  virtual std::string NewGroupId() = 0;
  /// Joins the devices of all ranks. With one rank, `id` is not used, and no library is needed.
  /// Waits for the others; meanwhile, and in later calls that wait for other ranks, `check` is
  /// called now and then, with the seconds of the wait. It may raise an exception to end it.
  virtual DeviceGroupPtr JoinGroup(const std::string& id, int rank, int world_size,
                                   const std::function<void(double)>& check) = 0;
};

}  // namespace singa
