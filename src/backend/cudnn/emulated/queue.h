#pragma once

// A GPU that the host plays, for tests on machines without one.
//
// What is queued on a stream waits there until somebody waits for the stream, as late as a GPU
// might come to it: whoever relies on work that he has not waited for, or takes back memory that it
// uses, gets wrong results here too. What other streams do meanwhile is a matter of the
// StreamOrder. Device memory is inaccessible except while such work runs, so that host code that
// reads it crashes. SINGA_CUDA_BLOCKING=1 runs everything at once.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/cudnn/runtime.h"

namespace singa::cuda::emulated {

/// Queues `work`, which may touch device memory. It holds its arguments by value.
void Enqueue(Stream stream, std::function<void()> work);

/// The one that the calling thread has set.
int CurrentGpu();

/// Launches, copies and the like that were queued so far, on all streams; one for captured work.
uint64_t Queued();

/// How much of it the stream has not run yet.
uint64_t Waiting(Stream stream);

/// More does not fit into a stream's queue: as on a GPU, who queues it waits until half is done.
inline constexpr size_t kMostWaiting = 1024;

/// What runs of other streams when somebody waits for one. Of each stream the order is its own, and
/// a stream that waits for another does so in any of these. Of captured work that has branches it
/// is the order in which they run.
enum class StreamOrder {
  kLate,      ///< nothing but what that stream waits for; captured work as late as it may
  kEarly,     ///< all of it, before; captured work as it was captured
  kShuffled,  ///< some of it, in between, as `seed` has it
};
/// Until the next call. At first the environment variable SINGA_CUDA_EMULATED_STREAMS (late, early,
/// shuffled) says so; late where it is not set.
void SetStreamOrder(StreamOrder order, unsigned seed = 0);

/// The next work that runs on any stream fails with this message, and so does, as on a GPU, all
/// that follows until Reset.
void FailNext(const char* message);
void Reset();

/// Bytes of memory that a device has; the environment variable SINGA_CUDA_EMULATED_MEMORY says
/// otherwise.
inline constexpr size_t kDeviceMemory = size_t{4} << 30;

}  // namespace singa::cuda::emulated
