#pragma once

// A GPU that the host plays, for tests on machines without one.
//
// What is queued on a stream waits there until somebody waits for the stream, as late as a GPU
// might come to it: whoever relies on work that he has not waited for, or takes back memory that it
// uses, gets wrong results here too. Device memory is inaccessible except while such work runs, so
// that host code that reads it crashes. SINGA_CUDA_BLOCKING=1 runs everything at once.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/cudnn/runtime.h"

namespace singa::cuda::emulated {

/// Queues `work`, which may touch device memory. It holds its arguments by value.
void Enqueue(Stream stream, std::function<void()> work);

/// Launches, copies and the like that were queued so far, on all streams; one for captured work.
uint64_t Queued();

/// The next work that runs on any stream fails with this message, and so does, as on a GPU, all
/// that follows until Reset.
void FailNext(const char* message);
void Reset();

/// Bytes of memory that a device has; the environment variable SINGA_CUDA_EMULATED_MEMORY says
/// otherwise.
inline constexpr size_t kDeviceMemory = size_t{4} << 30;

}  // namespace singa::cuda::emulated
