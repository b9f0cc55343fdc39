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

/// Reference-counted memory on a Device, shared by all tensors that are views of it. The layout
/// belongs to the Block, so it is the same for all of them.
class SINGA_API Block : public std::enable_shared_from_this<Block> {
 public:
  /// Allocates `bytes` of uninitialised memory, aligned to the device's alignment(); 0 is allowed.
  /// While this thread records on the device, the allocation is deferred until the memory is
  /// needed. Raises OutOfMemory, or Unavailable if the device is closed.
  Block(DevicePtr device, size_t bytes);
  /// Allocates memory and copies `host_data` to it. The copy may overlap with work that the device
  /// has queued before. Raises like the first constructor.
  Block(DevicePtr device, const void* host_data, size_t bytes);
  /// Wraps memory that is owned elsewhere. `release` is called once, when the block no longer uses
  /// the memory.
  Block(DevicePtr device, void* data, size_t bytes, std::function<void()> release);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const DevicePtr& device() const { return device_; }
  /// The memory. Runs recorded executions that use the block first, allocates deferred memory, and
  /// makes work that is queued later wait for a copy from the host that is still in flight. Raises
  /// Unavailable if the device is closed.
  void* data() const {
    if (waiting_.load(std::memory_order_relaxed) || arriving_.load(std::memory_order_acquire) ||
        !data_ || closed()) [[unlikely]]
      Settle();
    return data_;
  }
  size_t size() const { return size_; }

  /// Null if plain.
  const LayoutPtr& layout() const { return layout_; }
  /// Declares that the contents are in `layout`; moves nothing. For code that has just written
  /// them.
  void set_layout(LayoutPtr layout) { layout_ = std::move(layout); }
  /// Reorders an opaque block to row-major for all its tensors and counts the reorder; does nothing
  /// if the block is plain. No other thread may use the block during the call.
  void MakePlain();
  /// Reorders to `layout` (null: plain) for all its tensors, in new memory. Raises
  /// std::invalid_argument if the block is pinned or its size is not that of one whole tensor.
  void MakeLayout(const LayoutPtr& layout);

  /// Pins a block whose address was exported to NumPy or DLPack: converts it to plain, and keeps
  /// its address and layout until Unpin. Pins are counted.
  void Pin();
  void Unpin() noexcept;
  bool pinned() const { return pins_.load() != 0; }
  /// Whether nobody else can write to the memory without Touch: it is the block's own, and neither
  /// NumPy nor DLPack has its address now.
  bool is_private() const { return !lent_ && !release_ && !pinned(); }
  /// How often the address was exported. Whoever had it may have written to the block.
  uint64_t exports() const { return exports_.load(); }

  // For recordings and graphs.
  /// True if recorded executions that have not run yet use the block.
  void set_waiting(bool waiting) { waiting_.store(waiting, std::memory_order_relaxed); }
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// False while the allocation is deferred.
  bool has_memory() const { return data_ != nullptr; }
  /// Releases the block's memory and uses `data` instead, which the caller owns.
  void Bind(void* data) noexcept;
  /// Replaces memory from Bind by memory of its own with the same contents.
  void OwnMemory();

  /// Number of writes. The tape compares it to detect that a saved tensor was changed.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  /// Counts a write. Whoever writes through data() has to call it.
  void Touch() {
    version_.fetch_add(1, std::memory_order_relaxed);
    if (copies_.load(std::memory_order_relaxed)) [[unlikely]]
      DropCopies();
  }

  // Copies in other layouts, of weights that are read more often than written
  // (core/tensor/kept_copy.h). A write drops them, and so do Pin, Bind and MakeLayout.
  /// The copy in `layout` (null: row-major) that was kept; null if there is none.
  std::shared_ptr<Block> FindCopy(const LayoutPtr& layout) const;
  /// Offers a copy that was made at `version`. The second one in the same layout is kept: what is
  /// written after each use, as in training, is not stored twice.
  void OfferCopy(const LayoutPtr& layout, const std::shared_ptr<Block>& copy, uint64_t version);
  /// Bytes of the copies that are kept.
  size_t copied_bytes() const;
  /// Moves the block to the layout in which it was wanted last since it was written, if a backend
  /// describes that by strides and blocks, and drops the copies. No other thread may use it.
  void MoveAsWanted();

 private:
  struct Copies;

  void DropCopies() noexcept;
  void Release() noexcept;
  void Settle() const;
  bool closed() const;

  DevicePtr device_;
  mutable void* data_ = nullptr;  // null while a recording defers the allocation
  bool lent_ = false;             // data_ comes from Bind
  std::atomic<bool> waiting_{false};
  mutable std::atomic<bool> arriving_{false};  // a copy from the host that nothing waits for yet
  size_t size_ = 0;
  LayoutPtr layout_;
  std::atomic<uint64_t> version_{0};
  std::atomic<int> pins_{0};
  std::atomic<uint64_t> exports_{0};
  std::function<void()> release_;
  mutable std::atomic<Copies*> copies_{nullptr};  // made by the first OfferCopy
};
using BlockPtr = std::shared_ptr<Block>;

}  // namespace singa
