#pragma once

#include <cstdint>

#ifdef __unix__
#include <unistd.h>
#endif

namespace singa {

/// Bytes of a core's second level cache; a guess where the system does not say.
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
