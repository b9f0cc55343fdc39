#pragma once

// The implementation of Communicator: the order of collectives, and the thread that runs them.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/device/device_group.h"
#include "core/hidden.h"
#include "distributed/collectives/rank_group.h"
#include "singa/distributed/communicator.h"

namespace singa {

/// A collective as it is described to the other ranks.
struct Collective {
  std::string op{};      ///< "all_reduce"
  std::string name{};    ///< of what it is about, such as its first tensor; for errors
  std::string text{};    ///< all that ranks must agree about
  uint64_t layouts = 0;  ///< a hash of the layouts of its tensors
  uint64_t bytes = 0;    ///< of its tensors, for profiles
  /// Moves the data. `same_layouts`: whether the layouts of all ranks are equal. `where` is for
  /// errors.
  std::function<void(distributed::RankGroup&, bool same_layouts, const std::string& where)> run{};
};

struct SINGA_HIDDEN Communicator::Impl {
  /// `meet` is for several nodes: how this one reaches the others.
  Impl(const std::string& job, const distributed::Nodes& nodes, double timeout,
       const std::function<distributed::Meeting()>& meet);
  ~Impl();

  /// Queues a collective. The thread runs those that are queued one after the other. Returns a
  /// ticket for Wait.
  uint64_t Start(Collective collective);
  /// Waits for the collective, and raises its error. With one rank there is nothing to wait for.
  void Wait(uint64_t ticket);
  /// Start and Wait. Runs in this thread if nothing is queued.
  /// Returns its number, or 0 for a launch that not all ranks make.
  uint64_t Run(Collective collective);
  /// Asks all ranks whether they are about to launch captured collectives, described by `text`,
  /// too. `state` has to be equal on all ranks. Returns the number of the collective in which they
  /// have agreed; 0: they do not.
  uint64_t AgreeToLaunch(const std::string& text, uint64_t state);
  void Drain() noexcept;

  /// The devices of all ranks; the first call makes the group. Raises Unavailable if the device has
  /// no collectives, and NotCapturable if the first call is part of captured work.
  DeviceGroupPtr GroupOn(Device& device);
  std::vector<CollectiveWait> Waits();
  /// False in a child that was forked.
  bool InOwnProcess() const;

  std::unique_ptr<distributed::RankGroup> group;  // null with one rank
  std::mutex mutex;
  std::string context;
  std::atomic<bool> refusals_differ{false};  ///< in the last collective

 private:
  void CheckProcess() const;
  /// Returns the number of the collective; 0: a launch that not all ranks make. `start`, if not
  /// null, is when the collective began, for a profile; it becomes the time when all had come.
  uint64_t Execute(const Collective& collective, double* start = nullptr);
  void NoteWait(const Collective& collective, const distributed::RankGroup::Comparison& found);
  void Loop();
  std::vector<DeviceGroupPtr> DeviceGroupsNow();
  void WatchDevices();

  int32_t process_;
  std::condition_variable changed_;
  std::deque<Collective> queue_;
  bool busy_ = false;  // a collective runs
  bool stopping_ = false;
  uint64_t started_ = 0, finished_ = 0;  // tickets
  uint64_t number_ = 0;                  // of the last collective that was described
  std::map<std::pair<int, std::string>, std::pair<int64_t, double>> waits_;
  std::string error_;  // of the first collective that has failed
  std::thread thread_;
  std::mutex devices_mutex_;
  std::map<Device*, DeviceGroupPtr> devices_;
};

/// "name (2, 3) float32", one line for each tensor.
std::string DescribeTensors(const std::vector<Tensor>& tensors,
                            const std::vector<std::string>& names, size_t count);
/// A hash of their layouts.
uint64_t HashLayouts(std::span<const Tensor> tensors);

}  // namespace singa
