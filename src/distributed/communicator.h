#pragma once

// The implementation of Communicator: the order of collectives, and the thread that runs them.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "distributed/rank_group.h"
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

struct Communicator::Impl {
  /// `exchange` is for several nodes.
  Impl(const std::string& job, const distributed::Nodes& nodes, double timeout,
       const distributed::Exchange& exchange);
  ~Impl();

  /// Queues a collective. The thread runs those that are queued one after the other. Returns a
  /// ticket for Wait.
  uint64_t Start(Collective collective);
  /// Waits for the collective, and raises its error. With one rank there is nothing to wait for.
  void Wait(uint64_t ticket);
  /// Start and Wait. Runs in this thread if nothing is queued.
  void Run(Collective collective);
  void Drain() noexcept;
  /// False in a child that was forked.
  bool InOwnProcess() const;

  std::unique_ptr<distributed::RankGroup> group;  // null with one rank
  std::mutex mutex;
  std::string context;

 private:
  void CheckProcess() const;
  void Execute(const Collective& collective);
  void Loop();

  int32_t process_;
  std::condition_variable changed_;
  std::deque<Collective> queue_;
  bool busy_ = false;  // a collective runs
  bool stopping_ = false;
  uint64_t started_ = 0, finished_ = 0;  // tickets
  uint64_t number_ = 0;                  // of the last collective that was described
  std::string error_;                    // of the first collective that has failed
  std::thread thread_;
};

/// "name (2, 3) float32", one line for each tensor.
std::string DescribeTensors(const std::vector<Tensor>& tensors,
                            const std::vector<std::string>& names, size_t count);
/// A hash of their layouts.
uint64_t HashLayouts(const std::vector<Tensor>& tensors);

}  // namespace singa
