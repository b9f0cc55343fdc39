#pragma once

#include <cstdint>

#include "core/device/inline.h"

namespace singa::cpu {

/// Memory that will be read next.
struct Next {
  const char* first;
  int64_t bytes;
};

/// Fetches memory into the caches, a part at a time, while something else is computed. Hardware
/// prefetchers follow one stream well, and come too late for rows of pixels.
class Ahead {
 public:
  SINGA_INLINE Ahead(const Next& next, int64_t parts)
      : at_(next.first),
        end_(next.first + next.bytes),
        part_(((next.bytes + kLine - 1) / kLine + parts - 1) / parts * kLine) {}
  SINGA_INLINE void Fetch() {
    const char* end = end_ - at_ > part_ ? at_ + part_ : end_;
    for (; at_ < end; at_ += kLine) __builtin_prefetch(at_, 0, 2);
  }

 private:
  static constexpr int64_t kLine = 64;
  const char *at_, *end_;
  int64_t part_;
};

}  // namespace singa::cpu
