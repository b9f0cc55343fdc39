// The functions that kernels call before each memory access. Kernels are compiled with
// -fsanitize=thread; its calls end here, because the thread sanitizer does not know blocks and
// barriers. This file is not used with a real sanitizer, which defines the same names.

#include <cstddef>

#include "emulated_gpu/emulator.h"

using singa::cuda::emulated::AccessKind;
using singa::cuda::emulated::NoteAccess;

#define SINGA_HOOK extern "C" __attribute__((visibility("hidden")))
#define SINGA_HOOKS_OF(bytes)                                                                    \
  SINGA_HOOK void __tsan_read##bytes(void* data) { NoteAccess<bytes>(AccessKind::kRead, data); } \
  SINGA_HOOK void __tsan_write##bytes(void* data) { NoteAccess<bytes>(AccessKind::kWrite, data); }

SINGA_HOOKS_OF(1)
SINGA_HOOKS_OF(2)
SINGA_HOOKS_OF(4)
SINGA_HOOKS_OF(8)
SINGA_HOOKS_OF(16)

// For accesses of more than one instruction; their alignment is unknown.
SINGA_HOOK void __tsan_read_range(void* data, size_t bytes) {
  if (singa::cuda::emulated::watching)
    singa::cuda::emulated::NoteRange(AccessKind::kRead, data, bytes);
}
SINGA_HOOK void __tsan_write_range(void* data, size_t bytes) {
  if (singa::cuda::emulated::watching)
    singa::cuda::emulated::NoteRange(AccessKind::kWrite, data, bytes);
}

// Called by the host code in kernel files.
SINGA_HOOK void __tsan_init() {}
SINGA_HOOK void __tsan_func_entry(void*) {}
SINGA_HOOK void __tsan_func_exit() {}
SINGA_HOOK void __tsan_vptr_read(void**) {}
SINGA_HOOK void __tsan_vptr_update(void**, void*) {}
#define SINGA_ATOMIC_HOOKS_OF(bits, T)                                           \
  SINGA_HOOK T __tsan_atomic##bits##_load(const volatile T* data, int) {         \
    return __atomic_load_n(data, __ATOMIC_SEQ_CST);                              \
  }                                                                              \
  SINGA_HOOK T __tsan_atomic##bits##_fetch_add(volatile T* data, T value, int) { \
    return __atomic_fetch_add(data, value, __ATOMIC_SEQ_CST);                    \
  }                                                                              \
  SINGA_HOOK T __tsan_atomic##bits##_fetch_sub(volatile T* data, T value, int) { \
    return __atomic_fetch_sub(data, value, __ATOMIC_SEQ_CST);                    \
  }

SINGA_ATOMIC_HOOKS_OF(8, unsigned char)
SINGA_ATOMIC_HOOKS_OF(32, unsigned)
SINGA_ATOMIC_HOOKS_OF(64, unsigned long)
