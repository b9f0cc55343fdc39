#include "emulated_gpu/accesses.h"

#include <algorithm>

namespace singa::cuda::emulated {
namespace {

constexpr unsigned kWarp = 32;

bool SameWarp(const Moment& a, const Moment& b) { return a.thread / kWarp == b.thread / kWarp; }

/// Whether two accesses of one launch are ordered.
bool InOrder(const Moment& before, const Moment& now) {
  if (before.block != now.block) return false;
  if (before.barriers != now.barriers || before.thread == now.thread) return true;
  return SameWarp(before, now) && before.warp_barriers != now.warp_barriers;
}

}  // namespace

bool Races::Read(Byte& byte, const Moment& now, Moment* other) {
  if (byte.write.moment.launch == now.launch && !InOrder(byte.write.moment, now)) {
    *other = byte.write.moment;
    return false;
  }
  Access& read = byte.read;
  if (read.moment.launch != now.launch) {
    read = Access();
    read.moment = now;
  } else if (read.moment.block != now.block) {
    read.blocks = true;
  } else if (read.moment.barriers != now.barriers) {
    // A later access that is ordered after this read is also ordered after the older ones.
    read.moment = now;
    read.lanes = read.warps = false;
  } else if (!SameWarp(read.moment, now)) {
    read.warps = true;
  } else if (read.moment.warp_barriers != now.warp_barriers) {
    read.moment = now;
    read.lanes = false;
  } else if (read.moment.thread != now.thread) {
    read.lanes = true;
  }
  return true;
}

bool Races::Write(Byte& byte, const Moment& now, bool atomic, Moment* other) {
  const Access& write = byte.write;
  if (write.moment.launch == now.launch && !(atomic && write.atomic) &&
      !InOrder(write.moment, now)) {
    *other = write.moment;
    return false;
  }
  const Access& read = byte.read;
  if (read.moment.launch == now.launch) {
    const bool by_this_warp = SameWarp(read.moment, now) && !read.warps;
    const bool lanes_in_order = !read.lanes || read.moment.warp_barriers != now.warp_barriers;
    const bool in_order =
        InOrder(read.moment, now) && !read.blocks &&
        (read.moment.barriers != now.barriers || (by_this_warp && lanes_in_order));
    if (!in_order) {
      *other = read.moment;
      return false;
    }
  }
  byte.write.moment = now;
  byte.write.atomic = atomic;
  return true;
}

Races::Byte* Races::PageOf(uintptr_t address) {
  const uintptr_t page = address / kPage;
  if (!last_ || page != last_page_) {
    std::unique_ptr<Byte[]>& bytes = pages_[page];
    if (!bytes) bytes = std::make_unique<Byte[]>(kPage);
    last_page_ = page;
    last_ = bytes.get();
  }
  return last_;
}

template <class F>
bool Races::ForBytes(const void* data, size_t bytes, const F& f) {
  auto at = reinterpret_cast<uintptr_t>(data);
  for (const uintptr_t end = at + bytes; at < end;) {
    Byte* page = PageOf(at);
    const uintptr_t page_end = std::min((at / kPage + 1) * kPage, end);
    for (; at < page_end; ++at)
      if (!f(page[at % kPage])) return false;
  }
  return true;
}

bool Races::Note(AccessKind kind, const void* data, size_t bytes, const Moment& now,
                 Moment* other) {
  if (kind == AccessKind::kRead)
    return ForBytes(data, bytes, [&](Byte& byte) { return Read(byte, now, other); });
  const bool atomic = kind == AccessKind::kAtomic;
  return ForBytes(data, bytes, [&](Byte& byte) { return Write(byte, now, atomic, other); });
}

void Races::Forget(const void* data, size_t bytes) {
  ForBytes(data, bytes, [](Byte& byte) { return byte = {}, true; });
}

}  // namespace singa::cuda::emulated
