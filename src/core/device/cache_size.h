#pragma once

#include <cstdint>

#ifdef __unix__
#include <unistd.h>
#endif

namespace singa {

/// Results of at least this size do not stay in the caches until they are read.
inline constexpr int64_t kStreamedBytes = int64_t{16} << 20;

/// Size of a core's second-level cache in bytes; 512 KiB if the system does not report it.
inline int64_t SecondLevelCacheBytes() {
  static const int64_t bytes = [] {
    int64_t found = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return found > 0 ? found : int64_t{1} << 19;
  }();
  return bytes;
}

}  // namespace singa
