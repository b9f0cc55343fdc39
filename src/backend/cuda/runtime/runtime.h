#pragma once

// The part of the CUDA runtime that the backend uses. nvidia/runtime.cc calls CUDA;
// test/emulated_gpu/runtime.cc emulates it on the host, for tests. Failures throw cuda::Error.

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "singa/core/gpu.h"

struct CUstream_st;  // types behind cudaStream_t and cudaEvent_t
struct CUevent_st;

namespace singa::cuda {

using Stream = CUstream_st*;
using Event = CUevent_st*;

/// An error of the runtime, possibly of a kernel that was queued earlier.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The stream on which operations of this device, a GPU, are queued. Makes its GPU current for the
/// calling thread.
Stream StreamOf(const Device& device);

namespace runtime {

/// Why no GPU can be used; empty if one can. The other functions require that.
std::string Problem();
int NumGpus();
GpuProperties Properties(int id);
/// Versions, for reports.
std::vector<std::string> Report();

/// Makes this GPU current for the calling thread.
void Use(int id);

/// Null if the GPU is out of memory.
void* Malloc(size_t bytes);
void Free(void* data);
/// Page-locked host memory, for asynchronous copies.
void* MallocPinned(size_t bytes);
void FreePinned(void* data);

Stream NewStream();
void DeleteStream(Stream stream);
/// Waits until all queued work has run.
void Synchronize(Stream stream);

// Asynchronous. Host memory must be pinned, and must not change until the stream has passed the
// copy.
void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream);
void CopyToHost(void* host, const void* device, size_t bytes, Stream stream);
void CopyWithin(void* to, const void* from, size_t bytes, Stream stream);
void Zero(void* data, size_t bytes, Stream stream);

Event NewEvent();
void DeleteEvent(Event event);
/// Records in the event the work that is queued on the stream now.
void Record(Event event, Stream stream);
bool Reached(Event event);
void Wait(Event event);
/// Makes work queued on `stream` from now on wait for the event's present record. The host does not
/// wait.
void QueueWait(Event event, Stream stream);

/// Throws if a kernel launched earlier by this thread is known to have failed.
void CheckLaunches();

}  // namespace runtime
}  // namespace singa::cuda
