#pragma once

// The functions of NCCL that this folder uses. nvidia/ implements them with the library,
// test/emulated_gpu with a stub.

#include <array>
#include <cstddef>
#include <string>

#include "backend/cuda/runtime/runtime.h"
#include "core/device/device_group.h"
#include "singa/core/dtype.h"

struct ncclComm;  // the type behind ncclComm_t

namespace singa::nccl {

using cuda::Stream;

/// A rank's communicator.
using Comm = ncclComm*;
using Id = std::array<char, DeviceGroups::kGroupId>;

/// What calls return. Communicators do not block: a call may go on after it has returned
/// kInProgress, and GetAsyncError then tells its result.
enum class Result { kSuccess, kInProgress, kFailed };

class Library {
 public:
  virtual ~Library() = default;
  /// Why the library cannot be used and what to install; empty if it can be used.
  virtual std::string Problem() = 0;
  /// "NCCL 2.28.3"
  virtual std::string Version() = 0;
  /// What the last call of this thread that has failed, or the communicator, reports.
  virtual std::string LastError(Comm comm) = 0;

  virtual Result GetUniqueId(Id* id) = 0;
  /// For the calling thread's current GPU.
  virtual Result InitRank(Comm* comm, int world_size, const Id& id, int rank) = 0;
  /// Sets `state` to the result of calls that go on, or of work on the GPU.
  virtual Result GetAsyncError(Comm comm, Result* state) = 0;
  /// Ends a communicator of which no work is queued. It goes on, and is over when the others have
  /// called it, too; then Destroy frees the communicator.
  virtual Result Finalize(Comm comm) = 0;
  virtual Result Destroy(Comm comm) = 0;
  /// Ends it at once. Work on the GPU that waits for other ranks ends without a result.
  virtual Result Abort(Comm comm) = 0;

  /// What is called between the two begins with GroupEnd, as one piece of work.
  virtual Result GroupStart() = 0;
  virtual Result GroupEnd() = 0;
  virtual Result Send(const void* data, size_t bytes, int rank, Comm comm, Stream stream) = 0;
  virtual Result Receive(void* data, size_t bytes, int rank, Comm comm, Stream stream) = 0;
  /// `all` is (world_size, bytes); `own` may be this rank's part of it.
  virtual Result AllGather(const void* own, void* all, size_t bytes, Comm comm, Stream stream) = 0;
  virtual Result Broadcast(void* data, size_t bytes, int root, Comm comm, Stream stream) = 0;
  /// Replaces the data by the sum of factor · data over the ranks, added in the library's order.
  /// float32, float64, int32 and int64; the factor of integers is 1.
  virtual Result AllReduce(void* data, size_t count, DType dtype, double factor, Comm comm,
                           Stream stream) = 0;
};

/// The library of this build: NCCL, or its stub.
Library& TheLibrary();

}  // namespace singa::nccl
