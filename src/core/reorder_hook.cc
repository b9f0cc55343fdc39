#include "core/reorder_hook.h"

#include <atomic>

namespace singa {
namespace {

std::atomic<ReorderFn> g_hook{nullptr};

/// Memory of the device's allocator for the length of a scope.
class Staging {
 public:
  Staging(DevicePtr device, size_t bytes)
      : device_(std::move(device)), bytes_(bytes), data_(device_->Allocate(bytes)) {}
  ~Staging() { device_->Free(data_, bytes_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  void* data() const { return data_; }

 private:
  DevicePtr device_;
  size_t bytes_;
  void* data_;
};

}  // namespace

void SetReorderHook(ReorderFn hook) { g_hook.store(hook, std::memory_order_release); }

void Reorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
             const Shape& shape, DType dtype, const void* src, void* dst) {
  if (SameLayout(from, to)) {
    const size_t bytes = from ? from->bytes() : static_cast<size_t>(shape.Count()) * SizeOf(dtype);
    device->CopyBytes(dst, src, bytes);
    return;
  }
  if (ReorderFn hook = g_hook.load(std::memory_order_acquire)) {
    hook(device, from, to, shape, dtype, src, dst);
  } else if (!from) {
    to->Pack(src, dst);
  } else if (!to) {
    from->Unpack(src, dst);
  } else {
    Staging plain(device, static_cast<size_t>(shape.Count()) * SizeOf(dtype));
    from->Unpack(src, plain.data());
    to->Pack(plain.data(), dst);
  }
}

}  // namespace singa
