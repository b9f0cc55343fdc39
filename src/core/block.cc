#include "singa/core/block.h"

#include "core/counted_reorder.h"
#include "singa/core/device.h"
#include "singa/core/error.h"

namespace singa {

Block::Block(DevicePtr device, size_t bytes) : device_(std::move(device)), size_(bytes) {
  device_->CheckOpen("block");
  data_ = device_->Allocate(bytes);
}

Block::Block(DevicePtr device, void* data, size_t bytes, std::function<void()> release)
    : device_(std::move(device)), data_(data), size_(bytes), release_(std::move(release)) {}

Block::~Block() { Release(); }

void Block::Release() noexcept {
  if (release_) {
    try {
      release_();
    } catch (...) {
      // The owner of foreign memory must not bring us down.
    }
    release_ = nullptr;
  } else if (!device_->closed()) {
    device_->Free(data_, size_);  // a closed device has freed everything already
  }
}

void* Block::data() const {
  if (device_->closed()) [[unlikely]]
    device_->CheckOpen("tensor");
  return data_;
}

void Block::MakePlain() {
  if (layout_) MakeLayout(nullptr);
}

void Block::MakeLayout(const LayoutPtr& layout) {
  if (SameLayout(layout_, layout)) return;
  Check(pins_.load() == 0, "to_layout",
        "the tensor's memory is shared with NumPy or DLPack and has to stay plain");
  const Shape shape = layout_ ? layout_->shape() : layout->shape();
  const DType dtype = layout_ ? layout_->dtype() : layout->dtype();
  Check(layout_ || size_ == static_cast<size_t>(shape.Count()) * SizeOf(dtype), "to_layout",
        "the memory holds more than the one tensor of ", shape);
  const size_t bytes = layout ? layout->bytes() : shape.Count() * SizeOf(dtype);
  void* moved = device_->Allocate(bytes);
  try {
    CountedReorder(device_, layout_, layout, shape, dtype, data(), moved,
                   "a view or a write in place");
  } catch (...) {
    device_->Free(moved, bytes);
    throw;
  }
  Release();
  data_ = moved;
  size_ = bytes;
  layout_ = layout;
}

void Block::Pin() {
  MakePlain();
  ++pins_;
  device_->CountExport(1);
}

void Block::Unpin() noexcept {
  --pins_;
  device_->CountExport(-1);
}

}  // namespace singa
