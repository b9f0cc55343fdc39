#pragma once

// The CUDA runtime, as far as the backend needs it. nvidia/runtime.cc calls CUDA;
// emulated/runtime.cc does the same on the host, for tests. Whatever fails raises cuda::Error.

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "singa/core/gpu.h"

struct CUstream_st;  // what cudaStream_t and cudaEvent_t point to
struct CUevent_st;

namespace singa::cuda {

using Stream = CUstream_st*;
using Event = CUevent_st*;

/// What the runtime says; also of kernels that were queued earlier.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The stream on which operations of this device are queued, which is a device of this backend. The
/// calling thread's launches go to its GPU from now on.
Stream StreamOf(const Device& device);

namespace runtime {

/// Why no GPU can be used; empty where one can be. The other functions are for that case.
std::string Problem();
int NumGpus();
GpuProperties Properties(int id);
/// Versions, for a report.
std::vector<std::string> Report();

/// The calling thread's later calls are for this GPU.
void Use(int id);

/// Null where there is not so much left.
void* Malloc(size_t bytes);
void Free(void* data);
/// Host memory that the GPU reads and writes while the host goes on.
void* MallocPinned(size_t bytes);
void FreePinned(void* data);

Stream NewStream();
void DeleteStream(Stream stream);
/// Waits until all that was queued has run.
void Synchronize(Stream stream);

// Queued. Host memory has to be pinned, and stay as it is until the stream has come by.
void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream);
void CopyToHost(void* host, const void* device, size_t bytes, Stream stream);
void CopyWithin(void* to, const void* from, size_t bytes, Stream stream);
void Zero(void* data, size_t bytes, Stream stream);

Event NewEvent();
void DeleteEvent(Event event);
/// The event is what the stream has reached when all that is queued by now has run.
void Record(Event event, Stream stream);
bool Reached(Event event);
void Wait(Event event);
/// What is queued on `stream` from now on waits for the event, as it is recorded now; the host does
/// not.
void QueueWait(Event event, Stream stream);

/// Raises what the last launches of this thread have come to, as far as that is known.
void CheckLaunches();

}  // namespace runtime
}  // namespace singa::cuda
