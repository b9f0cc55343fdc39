#pragma once

// An emulated GPU, for tests on machines without one.
//
// Queued work waits until somebody waits for its stream, as late as a GPU might run it. So code
// that does not wait for work it relies on, or reuses memory that queued work still needs, gets
// wrong results here, too. StreamOrder determines what other streams run meanwhile. Device memory
// is accessible only while queued work runs, so host code that reads it crashes.
// SINGA_CUDA_BLOCKING=1 runs all work at once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include "backend/cuda/runtime/runtime.h"

namespace singa::cuda::emulated {

/// Queues `work`, which may access device memory. It must hold its arguments by value.
void Enqueue(Stream stream, std::function<void()> work);

/// The same for work that waits for other processes. A GPU runs it without a host that waits for
/// it, which may be what the other processes wait for. So a thread runs it, and what comes before
/// it, as soon as it is queued. The work may take long, and holds everything else up meanwhile.
void EnqueueShared(Stream stream, std::function<void()> work);

/// The GPU that the calling thread uses.
int CurrentGpu();

/// Number of launches, copies etc. queued so far on all streams. Captured work counts as one.
uint64_t Queued();

/// Number of these that the stream has not run yet.
uint64_t Waiting(Stream stream);

/// Capacity of a stream's queue. As on a GPU, a caller that exceeds it waits, here until half is
/// done.
inline constexpr size_t kMostWaiting = 1024;

/// The text of an environment variable that chooses what the emulated GPU does; empty where it is
/// not set.
std::string Setting(const char* name);
/// The number of the word that it is; 0 where it is not set. Raises std::invalid_argument for other
/// texts.
size_t Choice(const char* name, std::initializer_list<const char*> words);

/// What other streams run when somebody waits for one. Within a stream the order is fixed, and a
/// stream that waits for another does so in each case. For captured work with branches, this
/// determines the order of nodes.
enum class StreamOrder {
  kLate,      ///< only what the awaited stream depends on; captured nodes as late as possible
  kEarly,     ///< everything, beforehand; captured nodes in the order of the capture
  kShuffled,  ///< some of it, in an order drawn from `seed`
};
/// Valid until the next call. The environment variable SINGA_CUDA_EMULATED_STREAMS (late, early,
/// shuffled) sets the initial order; the default is late.
void SetStreamOrder(StreamOrder order, unsigned seed = 0);

/// Makes the next work on any stream fail with this message. As on a GPU, all later work fails as
/// well, until Reset.
void FailNext(const char* message);
void Reset();

/// Bytes of memory per device. The environment variable SINGA_CUDA_EMULATED_MEMORY overrides it.
inline constexpr size_t kDeviceMemory = size_t{4} << 30;

}  // namespace singa::cuda::emulated
