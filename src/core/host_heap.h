#pragma once

namespace singa {

/// Lets malloc keep a few MiB that were freed, unless the environment has settings of its own for
/// it (MALLOC_*_, GLIBC_TUNABLES). oneDNN's matrix products ask it for packing buffers in each
/// call; by default glibc returns them to the system, and every step faults their pages again.
void KeepFreedHeap();

}  // namespace singa
