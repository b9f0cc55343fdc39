#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "backend/cuda/nccl/library.h"

namespace singa::nccl {

/// NCCL's communicator of one rank. Calls return when the work is queued, which may need an answer
/// of the other ranks; they call `check` meanwhile (see DeviceGroups::JoinGroup). They raise
/// cuda::Error if NCCL fails, or after Abort. Work is queued by one thread at a time; Problem and
/// Abort may come from another one.
class Ranks {
 public:
  /// Joins the ranks with the same `id`, with the calling thread's current GPU.
  Ranks(const Id& id, int rank, int world_size, std::function<void(double)> check);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Bytes for a rank, or of a rank.
  struct Part {
    void* data;
    size_t bytes;
    int rank;
  };
  /// Sends and receives parts, all at once. Those between two ranks keep their order.
  void Exchange(std::span<const Part> sent, std::span<const Part> received, Stream stream);
  void AllGather(const void* own, void* all, size_t bytes, Stream stream);
  /// Copies each part to all ranks; its rank is the one that has it.
  void Broadcast(std::span<const Part> parts, Stream stream);
  struct Array {
    void* data;
    size_t count;
  };
  /// See Library::AllReduce.
  void AllReduce(std::span<const Array> arrays, DType dtype, double factor, Stream stream);

  /// An error of work on the GPU; empty: none so far.
  std::string Problem();
  void Abort() noexcept;

 private:
  template <class Fn>
  void Queue(const char* what, const Fn& fn);
  void Await(const char* what, std::unique_lock<std::timed_mutex>& lock);
  [[noreturn]] void Fail(const char* what);

  std::function<void(double)> check_;
  std::timed_mutex mutex_;  // held while NCCL is called
  Comm comm_ = nullptr;     // null after Abort
};

}  // namespace singa::nccl
