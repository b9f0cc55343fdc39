#include "core/tensor/kept_copy.h"

#include <utility>

#include "core/graph/recorded_step.h"
#include "core/layout/blocked_layout.h"

namespace singa {

BlockPtr Block::FindCopy(const LayoutPtr& layout) const {
  Copies* own = copies_.load(std::memory_order_acquire);
  if (!own) return nullptr;
  const std::lock_guard<std::mutex> lock(own->mutex);
  return own->Find(layout) ? own->copies.front().block : nullptr;
}

void Block::OfferCopy(const LayoutPtr& layout, const BlockPtr& copy, uint64_t version) {
  Copies* own = copies_.load(std::memory_order_acquire);
  if (!own) {
    auto made = std::make_unique<Copies>();
    if (copies_.compare_exchange_strong(own, made.get())) own = made.release();
  }
  const std::lock_guard<std::mutex> lock(own->mutex);
  if (version != this->version() || !is_private()) return;
  if (own->Find(layout)) {
    own->copies.front().block = copy;
  } else if (own->copies.size() < Copies::kMost) {
    own->copies.insert(own->copies.begin(), {layout, nullptr});
  }
}

size_t Block::copied_bytes() const {
  Copies* own = copies_.load(std::memory_order_acquire);
  if (!own) return 0;
  const std::lock_guard<std::mutex> lock(own->mutex);
  size_t sum = 0;
  for (const Copies::Copy& copy : own->copies) sum += copy.block ? copy.block->size() : 0;
  return sum;
}

void Block::DropCopies() noexcept {
  Copies* own = copies_.load(std::memory_order_acquire);
  if (!own) return;
  std::vector<Copies::Copy> dropped;
  const std::lock_guard<std::mutex> lock(own->mutex);
  dropped.swap(own->copies);
}

void Block::MoveAsWanted() {
  LayoutPtr wanted;
  if (Copies* own = copies_.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(own->mutex);
    if (!own->copies.empty()) wanted = own->copies.front().layout;
  }
  if (AsBlocked(wanted) && is_private()) MakeLayout(wanted);
}

Tensor InKeptLayout(const Tensor& t, const LayoutPtr& layout) {
  if (SameLayout(t.layout(), layout)) return t.ToLayout(layout);
  const BlockPtr& block = t.block();
  const bool whole = t.layout() || (t.is_contiguous() && t.offset() == 0 &&
                                    block->size() == static_cast<size_t>(t.bytes()));
  if (!whole || RecordedStep::Current() || block->waiting() || !block->is_private())
    return t.ToLayout(layout);
  const uint64_t version = block->version();
  if (const BlockPtr kept = block->FindCopy(layout))
    return Tensor(kept, t.shape(), ContiguousStrides(t.shape()), 0, t.data_type());
  const Tensor copy = t.ToLayout(layout);
  block->OfferCopy(layout, copy.block(), version);
  return copy;
}

}  // namespace singa
