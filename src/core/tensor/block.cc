#include "singa/core/block.h"

#include "core/graph/recorded_step.h"
#include "core/statistics/counted_reorder.h"
#include "core/tensor/kept_copy.h"
#include "singa/core/device.h"
#include "singa/core/error.h"

namespace singa {

Block::Block(DevicePtr device, size_t bytes) : device_(std::move(device)), size_(bytes) {
  device_->CheckOpen("block");
  const RecordedStep* step = RecordedStep::Current();
  if (!step || step->device() != device_) data_ = device_->Allocate(bytes);
}

Block::Block(DevicePtr device, const void* host_data, size_t bytes)
    : device_(std::move(device)), size_(bytes) {
  device_->CheckOpen("block");
  data_ = device_->AllocateCopy(host_data, bytes);
  arriving_ = true;
}

Block::Block(DevicePtr device, void* data, size_t bytes, std::function<void()> release)
    : device_(std::move(device)), data_(data), size_(bytes), release_(std::move(release)) {}

Block::~Block() {
  delete copies_.load();
  Release();
}

void Block::Release() noexcept {
  if (release_) {
    try {
      release_();
    } catch (...) {
      // Called by a destructor, which must not throw.
    }
    release_ = nullptr;
  } else if (data_ && !lent_ && !device_->closed()) {
    device_->Free(data_, size_);  // a closed device has already freed its memory
  }
}

bool Block::closed() const { return device_->closed(); }

void Block::Settle() const {
  device_->CheckOpen("tensor");
  if (RecordedStep* step = RecordedStep::Current(); step && step->device() == device_) {
    if (waiting_) step->RunForHost();
  } else if (waiting_) {
    const std::shared_ptr<RecordedStep> buffer = device_->buffer();
    if (buffer && buffer->SlotOf(this) >= 0) buffer->RunForHost();
  }
  if (!data_) data_ = device_->Allocate(size_);
  if (arriving_) {
    device_->AwaitCopy(data_);
    arriving_.store(false, std::memory_order_release);  // after AwaitCopy: other threads rely on it
  }
}

void Block::Bind(void* data) noexcept {
  DropCopies();
  Release();
  data_ = data;
  lent_ = true;
}

void Block::OwnMemory() {
  if (!lent_) return;
  void* own = device_->Allocate(size_);
  device_->CopyBytes(own, data_, size_);
  data_ = own;
  lent_ = false;
}

void Block::MakePlain() {
  if (layout_) MakeLayout(nullptr);
}

void Block::MakeLayout(const LayoutPtr& layout) {
  if (SameLayout(layout_, layout)) return;
  Check(pins_.load() == 0, "to_layout",
        "the tensor's memory is shared with NumPy or DLPack and must stay plain");
  const Shape shape = layout_ ? layout_->shape() : layout->shape();
  const DType dtype = layout_ ? layout_->dtype() : layout->dtype();
  Check(layout_ || size_ == static_cast<size_t>(shape.Count()) * SizeOf(dtype), "to_layout",
        "the memory holds more than the one tensor of ", shape);
  const size_t bytes = layout ? layout->bytes() : shape.Count() * SizeOf(dtype);
  constexpr const char* kReason = "a view or a write in place";
  if (RecordedStep* step = RecordedStep::Current();
      step && step->RecordLayout(this, layout, kReason)) {
    DropCopies();
    size_ = bytes;
    layout_ = layout;
    return;
  }
  void* moved = device_->Allocate(bytes);
  try {
    CountedReorder(device_, layout_, layout, shape, dtype, data(), moved, kReason);
  } catch (...) {
    device_->Free(moved, bytes);
    throw;
  }
  DropCopies();
  Release();
  data_ = moved;
  lent_ = false;
  size_ = bytes;
  layout_ = layout;
}

void Block::Pin() {
  RecordedStep::SetObstacleOf(*device_, "the step gives NumPy or DLPack the address of a tensor");
  MakePlain();
  DropCopies();
  ++pins_;
  ++exports_;
  device_->CountExport(1);
}

void Block::Unpin() noexcept {
  --pins_;
  device_->CountExport(-1);
}

}  // namespace singa
