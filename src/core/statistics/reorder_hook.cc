#include "core/statistics/reorder_hook.h"

#include <atomic>

#include "core/memory/workspace.h"

namespace singa {
namespace {

std::atomic<ReorderFn> g_hook{nullptr};

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
    const Workspace plain(*device, static_cast<size_t>(shape.Count()) * SizeOf(dtype));
    from->Unpack(src, plain.data());
    to->Pack(plain.data(), dst);
  }
}

}  // namespace singa
