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

class RecordedStep;

/// Where a device computes.
enum class DeviceKind : int { kCpu = 0, kCuda = 1 };

/// Bytes and counts of one device's allocator.
struct MemoryStats {
  size_t live = 0;                  ///< bytes in blocks now
  size_t peak = 0;                  ///< largest value of `live` since the last reset
  size_t reserved = 0;              ///< bytes taken from the system
  uint64_t allocations = 0;         ///< blocks allocated
  uint64_t system_allocations = 0;  ///< requests to the system
};

/// Addresses of the blocks of an Exec(fn, ...), in the order of its arguments.
struct BlockPointers {
  std::vector<const void*> reads;
  std::vector<void*> writes;
};

/// A CPU or a GPU with its memory. Thread-safe.
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
  /// Uninitialised memory that begins at a multiple of alignment(). Never null, not even for 0
  /// bytes. Raises OutOfMemory.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) noexcept = 0;
  /// Addresses of memory are multiples of this many bytes. So are the offsets in an Arena.
  virtual size_t alignment() const { return 64; }
  virtual MemoryStats memory() const = 0;
  virtual void ResetPeak() = 0;
  /// Returns unused memory to the system.
  virtual void EmptyCache() = 0;
  virtual void CopyFromHost(void* device_data, const void* host_data, size_t bytes) = 0;
  virtual void CopyToHost(void* host_data, const void* device_data, size_t bytes) = 0;
  /// Allocates memory and copies `host_data` to it. `host_data` may change when this returns. On a
  /// device that queues its work, the copy may run beside work that was queued before. Work that is
  /// queued after AwaitCopy(data) waits for the copy.
  virtual void* AllocateCopy(const void* host_data, size_t bytes);
  virtual void AwaitCopy(const void* data) { (void)data; }

  // Copies within the device's memory, in order with queued work. The caller has checked that
  // tensors are plain, lie on this device, and have equal shapes.
  /// to[i] = from[i], converting the type. Strides are arbitrary; those of `from` may be zero. If
  /// the two overlap, all of `from` is read before anything is written.
  virtual void CopyElements(const Tensor& from, const Tensor& to) = 0;
  virtual void FillElements(const Tensor& t, double value) = 0;
  virtual void CopyBytes(void* to, const void* from, size_t bytes) = 0;
  virtual void ZeroBytes(void* to, size_t bytes) = 0;

  // Execution.
  /// Runs a plan with workspace from the allocator, or appends it to the thread's Recording. Marks
  /// the outputs as written.
  void Exec(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
            std::span<const Tensor> outputs, const Scalars& scalars = {}, const SpecRef& spec = {});
  /// Runs a recorded node in `workspace`.
  void Run(const Node& node, void* workspace);
  /// Runs a function of the user on the addresses of blocks, which become plain. While executions
  /// are buffered (EnableGraph), it is a node of the buffer: a copy of the function runs in each
  /// RunGraph, in its place, with the addresses of that run; it is freed by ResetGraph. No pass
  /// rewrites it. A recorded step of a Model that calls it is executed.
  void Exec(const std::function<void(const BlockPointers&)>& fn, const std::vector<BlockPtr>& reads,
            const std::vector<BlockPtr>& writes, const char* op = "user");
  /// Waits for all queued work. Throws if some of it has failed.
  virtual void Sync() {}

#ifndef SWIG
  /// Makes it the current device of the calling thread for CUDA's libraries.
  virtual void MakeCurrent() const {}
  /// Name and size of a GPU. Choices by timing hold for one hardware.
  virtual std::string hardware() const { return {}; }
#endif

  // Random numbers come from a counter-based sequence, so results do not depend on the number of
  // threads.
  void SetRandSeed(uint64_t seed);
  /// Takes `count` positions of the sequence. Sets seed, offset and draw of `scalars`.
  void TakeRandom(uint64_t count, Scalars* scalars);
  /// {seed, position}, for set_random_state.
  std::vector<uint64_t> random_state() const;
  void set_random_state(const std::vector<uint64_t>& state);

  // SINGA's graph of a device. It has nothing to do with the graphs of Model.compile.
  /// True: executions of this thread on the device are buffered from now on. False: they run at
  /// once again; the buffer stays. Access to a buffered result runs the buffer first. Raises
  /// std::logic_error while this thread records, or while another thread buffers.
  void EnableGraph(bool enable);
  /// Whether executions of this thread are buffered.
  bool graph_enabled() const;
  /// Runs the buffer in order, including what earlier calls have run. Operations read the present
  /// contents of their inputs and draw new random numbers. Other numbers, such as learning rates,
  /// keep their values. `sequential` is ignored: the order is always that of the calls.
  void RunGraph(bool sequential = false);
  /// Empties the buffer.
  void ResetGraph();
#ifndef SWIG
  /// The buffer of EnableGraph; null if there is none.
  std::shared_ptr<RecordedStep> buffer() const;
#endif

  /// Frees all memory, including that of tensors that are still held. Using such a tensor then
  /// raises Unavailable.
  void Close();
  bool closed() const { return closed_; }
  /// Adds to the number of blocks whose address NumPy or DLPack holds. While there are any, the
  /// device cannot be closed.
  void CountExport(int change) noexcept { exports_ += change; }
  /// Raises Unavailable, with `op` in the message, if the device is closed.
  void CheckOpen(const char* op) const;

 protected:
  Device(DeviceKind kind, int id, std::string name);
  virtual void ReleaseAll() noexcept = 0;
  /// Called after each execution on a device that queues them. Throws if queued work has failed.
  virtual void Queued(const char* op) { (void)op; }

 private:
  void RunNow(const char* op, const Plan& plan, const Execution& execution);
  void RunUnchecked(const Node& node, void* workspace);
  void CheckBuffers() const;

  DeviceKind kind_;
  int id_;
  std::string name_;
  std::atomic<bool> closed_{false};
  std::atomic<int> exports_{0};
  mutable std::mutex buffer_mutex_;
  std::shared_ptr<RecordedStep> buffer_;
  std::atomic<std::thread::id> buffering_{};  // the thread whose executions are buffered
  mutable std::mutex random_mutex_;
  uint64_t seed_ = 0;
  uint64_t position_ = 0;
};

/// The CPU that tensors use unless they name another device. Never closed.
SINGA_API DevicePtr DefaultDevice();
/// Another CPU device, with memory and random numbers of its own.
SINGA_API DevicePtr CreateCpuDevice();

}  // namespace singa
