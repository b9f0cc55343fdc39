#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "singa/core/export.h"
#include "singa/core/layout.h"

namespace singa {

class Device;
using DevicePtr = std::shared_ptr<singa::Device>;

/// Bytes on a Device, shared by all tensors that are views of them. The physical layout belongs to
/// the Block: every tensor on it sees the same one.
class SINGA_API Block : public std::enable_shared_from_this<Block> {
 public:
  /// Takes `bytes` (64-byte aligned, not initialised) from the device's allocator; zero bytes are
  /// allowed. While this thread records, memory is taken when it is known to be needed. Raises
  /// OutOfMemory, or Unavailable when the device is closed.
  Block(DevicePtr device, size_t bytes);
  /// Takes memory with a copy of the host's, which may travel while what was queued before runs.
  /// Raises as above.
  Block(DevicePtr device, const void* host_data, size_t bytes);
  /// Wraps memory that somebody else owns; `release` is called once when the last tensor lets go.
  Block(DevicePtr device, void* data, size_t bytes, std::function<void()> release);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const DevicePtr& device() const { return device_; }
  /// Runs first what this thread has recorded about the block, and lets what is queued from now on
  /// wait for the block's bytes where they are on their way. Raises Unavailable when the device was
  /// closed meanwhile.
  void* data() const {
    if (waiting_.load(std::memory_order_relaxed) || arriving_.load(std::memory_order_acquire) ||
        !data_ || closed()) [[unlikely]]
      Settle();
    return data_;
  }
  size_t size() const { return size_; }

  /// Null for plain.
  const LayoutPtr& layout() const { return layout_; }
  /// Declares that the bytes lie in `layout`; moves nothing. For whoever has just written them.
  void set_layout(LayoutPtr layout) { layout_ = std::move(layout); }
  /// Reorders an opaque block to row-major for all its tensors, and counts that. No-op when plain.
  /// Not safe against threads that read the block at the same time.
  void MakePlain();
  /// Reorders to `layout` (null: plain) for all its tensors. The block may move to other memory;
  /// raises std::invalid_argument when it is pinned or not the size of one whole tensor.
  void MakeLayout(const LayoutPtr& layout);

  /// While pinned (its address was given away: NumPy, DLPack) the block stays where it is and
  /// plain.
  void Pin();
  void Unpin() noexcept;
  bool pinned() const { return pins_.load() != 0; }

  /// For recordings and graphs: whether executions that have not run yet use the block; whether it
  /// has memory; memory that somebody else owns, instead of its own; memory of its own, with the
  /// contents of what it was lent.
  void set_waiting(bool waiting) { waiting_.store(waiting, std::memory_order_relaxed); }
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  bool has_memory() const { return data_ != nullptr; }
  void Bind(void* data) noexcept;
  void OwnMemory();

  /// Counts writes; a tape compares it to find tensors that were changed after they were saved.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void Touch() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Release() noexcept;
  void Settle() const;
  bool closed() const;

  DevicePtr device_;
  mutable void* data_ = nullptr;  // taken late while a recording defers it
  bool lent_ = false;             // somebody else's
  std::atomic<bool> waiting_{false};
  mutable std::atomic<bool> arriving_{false};  // from the host, awaited by nobody yet
  size_t size_ = 0;
  LayoutPtr layout_;
  std::atomic<uint64_t> version_{0};
  std::atomic<int> pins_{0};
  std::function<void()> release_;
};
using BlockPtr = std::shared_ptr<Block>;

}  // namespace singa
