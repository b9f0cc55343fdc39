#pragma once

namespace singa {

/// Lets malloc keep a few MiB of freed memory, unless the environment configures malloc (MALLOC_*_,
/// GLIBC_TUNABLES). oneDNN's matrix products allocate packing buffers in each call. By default
/// glibc returns them to the system, so each step faults their pages again.
void KeepFreedHeap();

}  // namespace singa
