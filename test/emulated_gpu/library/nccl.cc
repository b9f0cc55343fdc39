// A stub of NCCL. The ranks, processes or threads of one machine, exchange data through a file in
// shared memory. A group of calls is one piece of work. It writes what the rank sends, and what it
// is about, waits for the others, and takes what is for this rank. Ranks that do not do the same
// fail, where NCCL would hang or mix up data. Sums are added from the last rank to the first, other
// than ours.

#include "backend/cuda/nccl/library.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "core/tensor/dtype_switch.h"
#include "emulated_gpu/queue.h"

namespace singa::nccl {
namespace {

constexpr int kMostRanks = 16;
constexpr size_t kText = 4096, kData = size_t{32} << 20;

/// A rank's part of the file.
struct Slot {
  std::atomic<uint64_t> joined, written, taken, left;
  int gpu;
  char text[kText];  // the calls of a group
  char data[kData];  // what it sends
};
struct Board {
  Slot slots[kMostRanks];
};

/// What goes wrong: "stuck 1 5" means that the fifth group of rank 1 never runs.
struct Fault {
  std::string kind;
  int rank = -1;
  uint64_t number = 0;
};
Fault TheFault() {
  Fault fault;
  std::istringstream(cuda::emulated::Setting("SINGA_CUDA_EMULATED_NCCL")) >> fault.kind >>
      fault.rank >> fault.number;
  return fault;
}

enum class Op : int { kSend, kReceive, kGather, kBroadcast, kReduce };
struct Call {
  Op op;
  void* data;
  const void* own;  // gather
  size_t bytes;
  int peer;  // or root
  DType dtype;
  double factor;

  /// What all ranks have to agree about.
  std::string Text() const {
    if (op == Op::kSend || op == Op::kReceive) return "exchange;";
    std::ostringstream text;
    text << static_cast<int>(op) << ' ' << bytes << ' ' << peer << ' ' << DTypeName(dtype) << ' '
         << factor << ';';
    return text.str();
  }
};

thread_local std::string t_error;

Result Failed(const std::string& text) {
  t_error = text;
  return Result::kFailed;
}

}  // namespace
}  // namespace singa::nccl

/// Lives as long as the process, since work may still use it after Abort.
struct ncclComm {
  singa::nccl::Board* board = nullptr;
  int rank = 0, world = 0;
  std::string name;           // of the file, until all have it
  std::string error;          // written before state
  std::atomic<int> state{0};  // 0: all is well, 1: joins, 2: leaves, 3: failed
  std::atomic<bool> aborted{false};
  std::atomic<uint64_t> groups{0};  // that have run

  singa::nccl::Slot& own() const { return board->slots[rank]; }
  bool All(std::atomic<uint64_t> singa::nccl::Slot::*count, uint64_t least) const {
    for (int r = 0; r < world; ++r)
      if ((board->slots[r].*count).load() < least) return false;
    return true;
  }
  void Fail(const std::string& text) {
    error = text;
    state = 3;
  }
};

namespace singa::nccl {
namespace {

/// Waits on the GPU, until Abort at most.
template <class Ready>
bool Await(const ncclComm& comm, const Ready& ready) {
  while (!ready()) {
    if (comm.aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

/// Where the bytes of a rank's call lie among those that it has written.
size_t OffsetOf(const std::vector<Call>& calls, size_t index) {
  size_t offset = 0;
  for (size_t i = 0; i < index; ++i)
    if (calls[i].op != Op::kReceive) offset += calls[i].bytes;
  return offset;
}

void AddAll(const ncclComm& comm, const Call& call, size_t offset) {
  SwitchNumber(call.dtype, "nccl", [&]<class T>() {
    T* to = static_cast<T*>(call.data);
    for (size_t i = 0; i < call.bytes / sizeof(T); ++i) {
      using C = ComputeType<T>;
      C sum = 0;
      for (int r = comm.world - 1; r >= 0; --r) {
        T term;
        std::memcpy(&term, comm.board->slots[r].data + offset + i * sizeof(T), sizeof(T));
        sum = static_cast<C>(sum + static_cast<C>(call.factor) * Convert<C>(term));
      }
      to[i] = Convert<T>(sum);
    }
  });
}

/// The k-th part that `from` has sent to `to` begins where its sends before end.
struct Sent {
  int to;
  size_t bytes, offset;
};

void RunGroup(ncclComm& comm, const std::vector<Call>& calls) {
  const uint64_t number = ++comm.groups;
  Slot& own = comm.own();
  if (const Fault fault = TheFault(); fault.rank == comm.rank && fault.number == number) {
    if (fault.kind == "killed") kill(getpid(), SIGKILL);
    if (fault.kind == "stuck") Await(comm, [] { return false; });
    if (fault.kind == "error") comm.Fail("the network is down");
    if (fault.kind == "error" || fault.kind == "stuck") return;
  }
  // All have taken the data of the group before.
  if (!Await(comm, [&] { return comm.All(&Slot::taken, number - 1); })) return;
  std::string text;
  std::vector<Sent> sent;
  size_t bytes = 0;
  for (const Call& call : calls) {
    if (call.op == Op::kReceive) continue;
    if (bytes + call.bytes > kData) throw std::runtime_error("the stub of NCCL takes less data");
    const void* from = call.op == Op::kGather ? call.own : call.data;
    std::memcpy(own.data + bytes, from, call.bytes);
    if (call.op == Op::kSend) {
      sent.push_back({call.peer, call.bytes, bytes});
    } else {
      text += call.Text();
    }
    bytes += call.bytes;
  }
  // The list of what is sent lies before the text.
  const size_t count = sent.size(), list = count * sizeof(Sent);
  if (sizeof(count) + list + text.size() + 1 > kText) throw std::runtime_error("too many calls");
  std::memcpy(own.text, &count, sizeof(count));
  std::copy_n(reinterpret_cast<const char*>(sent.data()), list, own.text + sizeof(count));
  std::strcpy(own.text + sizeof(count) + list, text.c_str());
  own.written = number;
  if (!Await(comm, [&] { return comm.All(&Slot::written, number); })) return;
  std::vector<std::vector<Sent>> all;
  for (int r = 0; r < comm.world; ++r) {
    const char* theirs = comm.board->slots[r].text;
    size_t found = 0;
    std::memcpy(&found, theirs, sizeof(found));
    std::vector<Sent>& parts = all.emplace_back(found);
    std::copy_n(theirs + sizeof(found), found * sizeof(Sent),
                reinterpret_cast<char*>(parts.data()));
    if (theirs + sizeof(found) + found * sizeof(Sent) != text)
      return comm.Fail("ranks do not do the same: " + text + " and " +
                       (theirs + sizeof(found) + found * sizeof(Sent)));
  }
  std::vector<size_t> next(static_cast<size_t>(comm.world));
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const auto at = [&](int rank) { return comm.board->slots[rank].data + OffsetOf(calls, i); };
    if (call.op == Op::kReceive) {
      const std::vector<Sent>& parts = all[static_cast<size_t>(call.peer)];
      size_t& k = next[static_cast<size_t>(call.peer)];
      while (k < parts.size() && parts[k].to != comm.rank) ++k;
      if (k == parts.size() || parts[k].bytes != call.bytes)
        return comm.Fail("rank " + std::to_string(call.peer) + " sends something else");
      std::memcpy(call.data, comm.board->slots[call.peer].data + parts[k++].offset, call.bytes);
    } else if (call.op == Op::kGather) {
      for (int r = 0; r < comm.world; ++r)
        std::memcpy(static_cast<char*>(call.data) + static_cast<size_t>(r) * call.bytes, at(r),
                    call.bytes);
    } else if (call.op == Op::kBroadcast) {
      std::memcpy(call.data, at(call.peer), call.bytes);
    } else if (call.op == Op::kReduce) {
      AddAll(comm, call, OffsetOf(calls, i));
    }
  }
  own.taken = number;
}

thread_local bool t_grouped = false;
thread_local std::vector<Call> t_calls;
thread_local Comm t_comm = nullptr;
thread_local Stream t_stream = nullptr;

Result Add(Call call, Comm comm, Stream stream) {
  if (!t_grouped) return Failed("the stub knows calls in groups only");
  if (comm->state == 3) return Failed(comm->error);
  t_calls.push_back(call);
  t_comm = comm;
  t_stream = stream;
  return Result::kSuccess;
}

class StubOfNccl final : public Library {
 public:
  std::string Problem() override {
    return TheFault().kind == "missing" ? "libnccl.so.2 cannot be loaded (for a test)" : "";
  }
  std::string Version() override { return "a stub of NCCL"; }
  std::string LastError(Comm comm) override {
    return comm && comm->state == 3 ? comm->error : t_error;
  }

  Result GetUniqueId(Id* id) override {
    std::random_device random;
    std::ostringstream name;
    name << "/singa-nccl-" << getpid() << '-' << random() << random();
    id->fill(0);
    std::copy_n(name.str().begin(), name.str().size(), id->begin());
    return Result::kSuccess;
  }

  Result InitRank(Comm* made, int world_size, const Id& id, int rank) override {
    if (world_size > kMostRanks) return Failed("the stub has fewer ranks");
    const std::string name = "/dev/shm" + std::string(id.data());
    const int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Board)) != 0) return Failed("no shared memory");
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return Failed("no shared memory");
    Comm comm = *made = new ncclComm;
    comm->board = static_cast<Board*>(memory);
    comm->name = name;
    comm->rank = rank;
    comm->world = world_size;
    comm->state = 1;
    if (const Fault fault = TheFault(); fault.kind == "absent" && fault.rank == rank)
      return Result::kInProgress;
    comm->own().gpu = cuda::emulated::CurrentGpu();
    comm->own().joined = 1;
    // As NCCL does, from a thread of its own.
    std::thread([comm] {
      if (!Await(*comm, [&] { return comm->All(&Slot::joined, 1); })) return;
      unlink(comm->name.c_str());
      for (int r = 0; r < comm->world; ++r)
        if (r != comm->rank && comm->board->slots[r].gpu == comm->own().gpu)
          return comm->Fail("duplicate GPU: ranks " + std::to_string(comm->rank) + " and " +
                            std::to_string(r) + " both use " + std::to_string(comm->own().gpu));
      comm->state = 0;
    }).detach();
    return Result::kInProgress;
  }

  Result GetAsyncError(Comm comm, Result* state) override {
    if (comm->state == 2 && comm->All(&Slot::left, 1)) comm->state = 0;
    const int found = comm->state;
    *state = found == 0 ? Result::kSuccess : found == 3 ? Result::kFailed : Result::kInProgress;
    return Result::kSuccess;
  }
  Result Finalize(Comm comm) override {
    comm->own().left = 1;
    comm->state = 2;
    return Result::kInProgress;
  }
  Result Destroy(Comm comm) override { return Abort(comm); }
  Result Abort(Comm comm) override {
    comm->aborted = true;
    unlink(comm->name.c_str());
    return Result::kSuccess;
  }

  Result GroupStart() override {
    t_grouped = true;
    t_calls.clear();
    return Result::kSuccess;
  }
  Result GroupEnd() override {
    t_grouped = false;
    if (t_calls.empty()) return Result::kSuccess;
    cuda::emulated::EnqueueShared(
        t_stream, [comm = t_comm, calls = std::move(t_calls)] { RunGroup(*comm, calls); });
    t_calls = {};
    return Result::kInProgress;
  }
  Result Send(const void* data, size_t bytes, int rank, Comm comm, Stream stream) override {
    return Add({Op::kSend, const_cast<void*>(data), nullptr, bytes, rank, kUInt8, 1}, comm, stream);
  }
  Result Receive(void* data, size_t bytes, int rank, Comm comm, Stream stream) override {
    return Add({Op::kReceive, data, nullptr, bytes, rank, kUInt8, 1}, comm, stream);
  }
  Result AllGather(const void* own, void* all, size_t bytes, Comm comm, Stream stream) override {
    return Add({Op::kGather, all, own, bytes, 0, kUInt8, 1}, comm, stream);
  }
  Result Broadcast(void* data, size_t bytes, int root, Comm comm, Stream stream) override {
    return Add({Op::kBroadcast, data, nullptr, bytes, root, kUInt8, 1}, comm, stream);
  }
  Result AllReduce(void* data, size_t count, DType dtype, double factor, Comm comm,
                   Stream stream) override {
    return Add({Op::kReduce, data, nullptr, count * SizeOf(dtype), 0, dtype, factor}, comm, stream);
  }
};

}  // namespace

Library& TheLibrary() {
  static auto& library = *new StubOfNccl;
  return library;
}

}  // namespace singa::nccl
