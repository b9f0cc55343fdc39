#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "singa/core/block.h"
#include "singa/core/export.h"
#include "singa/core/node.h"
#include "singa/core/plan.h"

namespace singa {

class Recording;

enum class DeviceKind : int { kCpu = 0, kCuda = 1 };

/// Bytes and counts of one device's allocator.
struct MemoryStats {
  size_t live = 0;                  ///< in blocks now
  size_t peak = 0;                  ///< most that was ever live since the last reset
  size_t reserved = 0;              ///< taken from the system and kept
  uint64_t allocations = 0;         ///< blocks handed out
  uint64_t system_allocations = 0;  ///< times that the system was asked for memory
};

/// Addresses of the blocks of an Exec(fn, ...), in the order in which they were given.
struct BlockPointers {
  std::vector<const void*> reads;
  std::vector<void*> writes;
};

/// A place with memory and something that computes. Thread-safe.
class SINGA_API Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceKind kind() const { return kind_; }
  int id() const { return id_; }
  /// "cpu", "cuda:0".
  const std::string& name() const { return name_; }

  // Memory.
  /// Begins at a multiple of alignment(), not initialised, never null (also for 0 bytes). Raises
  /// OutOfMemory.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) noexcept = 0;
  /// Bytes at whose multiples memory begins; what shares a block (Arena) keeps to it, too.
  virtual size_t alignment() const { return 64; }
  virtual MemoryStats memory() const = 0;
  virtual void ResetPeak() = 0;
  /// Gives back to the system what no block uses.
  virtual void EmptyCache() = 0;
  virtual void CopyFromHost(void* device_data, const void* host_data, size_t bytes) = 0;
  virtual void CopyToHost(void* host_data, const void* device_data, size_t bytes) = 0;
  /// New memory with a copy of the host's, which is read before this returns. On a device that
  /// queues its work the bytes travel while what was queued before runs: what is queued after
  /// AwaitCopy(data) finds them.
  virtual void* AllocateCopy(const void* host_data, size_t bytes);
  virtual void AwaitCopy(const void* data) { (void)data; }

  // Moves within the device's memory, in order with what was queued. For callers that have checked:
  // tensors are plain, of this device, and of equal shapes.
  /// to[i] = from[i], converting the type. Any strides; from's may be zero. The two may overlap:
  /// `from` is then read first, as a whole.
  virtual void CopyElements(const Tensor& from, const Tensor& to) = 0;
  virtual void FillElements(const Tensor& t, double value) = 0;
  virtual void CopyBytes(void* to, const void* from, size_t bytes) = 0;
  virtual void ZeroBytes(void* to, size_t bytes) = 0;

  // Execution.
  /// Runs a plan now (workspace from the allocator), or hands it to the thread's Recording. Marks
  /// the outputs as written.
  void Exec(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
            std::span<const Tensor> outputs, const Scalars& scalars = {}, const SpecRef& spec = {});
  /// Runs a recorded node in `workspace`.
  void Run(const Node& node, void* workspace);
  /// For users: an opaque step, never fused or planned. `fn` gets resolved addresses; opaque blocks
  /// are made plain.
  void Exec(const std::function<void(const BlockPointers&)>& fn, const std::vector<BlockPtr>& reads,
            const std::vector<BlockPtr>& writes, const char* op = "user");
  /// Waits for everything that was queued. Raises what went wrong meanwhile.
  virtual void Sync() {}

#ifndef SWIG
  /// Makes it the device that libraries find where they ask for the calling thread's.
  virtual void MakeCurrent() const {}
  /// What choices by timing hold for, beside the host: the name and size of a GPU.
  virtual std::string hardware() const { return {}; }
#endif

  // Random state: a counter-based sequence, so that results do not depend on the number of threads.
  void SetRandSeed(uint64_t seed);
  /// Takes `count` positions of the sequence; writes seed, first position and the draw.
  void TakeRandom(uint64_t count, Scalars* scalars);
  /// {seed, position}, to be saved and restored.
  std::vector<uint64_t> random_state() const;
  void set_random_state(const std::vector<uint64_t>& state);

  // SINGA's graph of a device; that of a model (Model.compile) is another thing.
  /// True: what this thread executes on the device from now on is buffered. False: it runs at once
  /// again, and the buffer stays. Whoever looks at a result that is buffered makes it run. Raises
  /// std::logic_error while this thread records, or another one buffers.
  void EnableGraph(bool enable);
  /// This thread's executions are buffered.
  bool graph_enabled() const;
  /// Runs all that is buffered, in order, again what ran in an earlier call: on what its inputs
  /// hold by then, with new random numbers, but numbers such as learning rates as they were.
  /// `sequential` changes nothing.
  void RunGraph(bool sequential = false);
  /// Forgets what is buffered.
  void ResetGraph();
#ifndef SWIG
  /// What EnableGraph buffers; null where nothing is.
  std::shared_ptr<Recording> buffer() const;
#endif
  void SetVerbosity(int verbosity) { verbosity_ = verbosity; }
  void SetSkipIteration(int iterations) { skip_iteration_ = iterations; }
  int verbosity() const { return verbosity_; }

  /// Frees all memory, also of tensors that are still held; using one of those then raises
  /// Unavailable.
  void Close();
  bool closed() const { return closed_; }
  /// Blocks whose address somebody else holds; the device cannot be closed meanwhile.
  void CountExport(int change) noexcept { exports_ += change; }
  /// Raises Unavailable naming `op` when closed.
  void CheckOpen(const char* op) const;

 protected:
  Device(DeviceKind kind, int id, std::string name);
  virtual void ReleaseAll() noexcept = 0;
  /// Called after each execution on a device that queues them. Raises what has gone wrong so far.
  virtual void Queued(const char* op) { (void)op; }

 private:
  void RunNow(const char* op, const Plan& plan, const Execution& execution);
  void RunUnchecked(const Node& node, void* workspace);
  DeviceKind kind_;
  int id_;
  std::string name_;
  std::atomic<bool> closed_{false};
  std::atomic<int> exports_{0};
  void CheckBuffers() const;

  mutable std::mutex buffer_mutex_;
  std::shared_ptr<Recording> buffer_;
  std::atomic<std::thread::id> buffering_{};  // the thread whose executions are buffered
  int verbosity_ = 0;
  int skip_iteration_ = 0;
  mutable std::mutex random_mutex_;
  uint64_t seed_ = 0;
  uint64_t position_ = 0;
};

/// The CPU that everything uses unless told otherwise. Never closed.
SINGA_API DevicePtr DefaultDevice();
/// A further CPU device with memory of its own.
SINGA_API DevicePtr CreateCpuDevice();

}  // namespace singa
