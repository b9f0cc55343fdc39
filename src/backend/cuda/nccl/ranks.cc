#include "backend/cuda/nccl/ranks.h"

#include <chrono>
#include <thread>
#include <utility>

namespace singa::nccl {
namespace {

using std::chrono::milliseconds;

constexpr auto kLook = std::chrono::microseconds(100);
/// How long Abort waits for a call of another thread, and the destructor for the other ranks.
constexpr auto kCall = milliseconds(1000), kFarewell = milliseconds(2000);

}  // namespace

Ranks::Ranks(const Id& id, int rank, int world_size, std::function<void(double)> check)
    : check_(std::move(check)) {
  std::unique_lock<std::timed_mutex> lock(mutex_);
  constexpr const char* kWhat = "join the GPUs of the other ranks";
  const Result started = TheLibrary().InitRank(&comm_, world_size, id, rank);
  try {
    if (started == Result::kFailed) Fail(kWhat);
    Await(kWhat, lock);
  } catch (...) {
    if (lock.owns_lock()) lock.unlock();
    Abort();
    throw;
  }
}

Ranks::~Ranks() {
  Library& library = TheLibrary();
  {
    const std::lock_guard<std::timed_mutex> lock(mutex_);
    if (!comm_) return;
    // The others may still take data that NCCL keeps for them. If they do not come, they have
    // failed.
    if (library.Finalize(comm_) != Result::kFailed) {
      const auto end = std::chrono::steady_clock::now() + kFarewell;
      Result state = Result::kInProgress;
      while (library.GetAsyncError(comm_, &state) == Result::kSuccess &&
             state == Result::kInProgress && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(kLook);
      if (state == Result::kSuccess) {
        library.Destroy(std::exchange(comm_, nullptr));
        return;
      }
    }
  }
  Abort();
}

void Ranks::Fail(const char* what) {
  throw cuda::Error(std::string("NCCL: cannot ") + what + ": " + TheLibrary().LastError(comm_));
}

/// Waits until NCCL has done what it was told. Others may call Abort meanwhile.
void Ranks::Await(const char* what, std::unique_lock<std::timed_mutex>& lock) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    if (!comm_) throw cuda::Error(std::string("NCCL: gave up to ") + what);
    Result state = Result::kFailed;
    if (TheLibrary().GetAsyncError(comm_, &state) == Result::kFailed || state == Result::kFailed)
      Fail(what);
    if (state == Result::kSuccess) return;
    lock.unlock();
    check_(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::this_thread::sleep_for(kLook);
    lock.lock();
  }
}

/// Queues a group of calls. fn() returns false as soon as one has failed.
template <class Fn>
void Ranks::Queue(const char* what, const Fn& fn) {
  Library& library = TheLibrary();
  std::unique_lock<std::timed_mutex> lock(mutex_);
  if (!comm_) throw cuda::Error(std::string("NCCL: cannot ") + what + " after a failure");
  if (library.GroupStart() == Result::kFailed) Fail(what);
  const bool right = fn(library);
  const Result ended = library.GroupEnd();
  if (!right || ended == Result::kFailed) Fail(what);
  if (ended == Result::kInProgress) Await(what, lock);
}

void Ranks::Exchange(std::span<const Part> sent, std::span<const Part> received, Stream stream) {
  Queue("exchange data", [&](Library& library) {
    for (const Part& p : sent)
      if (library.Send(p.data, p.bytes, p.rank, comm_, stream) == Result::kFailed) return false;
    for (const Part& p : received)
      if (library.Receive(p.data, p.bytes, p.rank, comm_, stream) == Result::kFailed) return false;
    return true;
  });
}

void Ranks::AllGather(const void* own, void* all, size_t bytes, Stream stream) {
  Queue("gather data", [&](Library& library) {
    return library.AllGather(own, all, bytes, comm_, stream) != Result::kFailed;
  });
}

void Ranks::Broadcast(std::span<const Part> parts, Stream stream) {
  Queue("broadcast data", [&](Library& library) {
    for (const Part& p : parts)
      if (library.Broadcast(p.data, p.bytes, p.rank, comm_, stream) == Result::kFailed)
        return false;
    return true;
  });
}

void Ranks::AllReduce(std::span<const Array> arrays, DType dtype, double factor, Stream stream) {
  Queue("add up data", [&](Library& library) {
    for (const Array& a : arrays)
      if (library.AllReduce(a.data, a.count, dtype, factor, comm_, stream) == Result::kFailed)
        return false;
    return true;
  });
}

std::string Ranks::Problem() {
  const std::unique_lock<std::timed_mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !comm_) return {};
  Result state = Result::kSuccess;
  if (TheLibrary().GetAsyncError(comm_, &state) != Result::kFailed && state != Result::kFailed)
    return {};
  return "NCCL: " + TheLibrary().LastError(comm_);
}

void Ranks::Abort() noexcept {
  // A call that goes on for so long waits for work on the GPU that this ends.
  const std::unique_lock<std::timed_mutex> lock(mutex_, kCall);
  if (Comm comm = std::exchange(comm_, nullptr)) TheLibrary().Abort(comm);
}

}  // namespace singa::nccl
