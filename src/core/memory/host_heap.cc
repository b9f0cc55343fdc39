#include "core/memory/host_heap.h"

#include <initializer_list>
#include <string>

#include "singa/core/environment.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace singa {

void KeepFreedHeap() {
#if defined(__GLIBC__)
  constexpr int kLargest = 4 << 20;  // larger requests are mapped separately
  constexpr int kKept = 16 << 20;
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"})
    if (!EnvironmentValue(name).empty()) return;
  if (EnvironmentValue("GLIBC_TUNABLES").find("glibc.malloc.") != std::string::npos) return;
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kKept);
#endif
}

}  // namespace singa
