#include "singa/core/gpu.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "core/device/cuda_library.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"
#include "singa/version.h"

namespace singa {
namespace {

constexpr const char* kFile = "libsinga_cuda.so";

/// The opened library, or why it could not be opened.
struct Opened {
  CudaLibrary* library = nullptr;
  std::string path;
  std::string problem;
};

std::string BesideThis() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&NumGpus), &info) || !info.dli_fname) return kFile;
  return (std::filesystem::path(info.dli_fname).parent_path() / kFile).string();
}

Opened Open() {
  Opened opened;
  const std::string named = EnvironmentValue("SINGA_CUDA_LIBRARY");
  opened.path = named.empty() ? BesideThis() : named;
  std::error_code ignored;
  if (!std::filesystem::exists(opened.path, ignored)) {
    opened.problem = named.empty()
                         ? std::string("this build of singa has no CUDA backend (") + kFile +
                               " is not beside libsinga.so). To get it, build singa from its clone "
                               "where nvcc of CUDA 13 is on PATH, after `python "
                               "scripts/cuda_headers.py` in the environment that builds it, which "
                               "installs the headers of cuDNN, cuBLAS and NCCL (docs/cuda.md)"
                         : "SINGA_CUDA_LIBRARY names " + named + ", which does not exist";
    return opened;
  }
  // Never closed, because devices live as long as the process.
  void* handle = dlopen(opened.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    opened.problem = std::string("the CUDA backend cannot be loaded: ") + dlerror();
    return opened;
  }
  const auto open = reinterpret_cast<CudaOpenFn>(dlsym(handle, "singa_cuda_open"));
  if (!open) {
    opened.problem = opened.path + " is no CUDA backend of singa: it has no singa_cuda_open";
  } else if (const char* refusal = open(kCudaInterface, SINGA_VERSION, &opened.library)) {
    opened.problem = opened.path + ": " + refusal;
  }
  return opened;
}

const Opened& TheLibrary() {
  static const Opened& opened = *new Opened(Open());
  return opened;
}

/// The library. Raises Unavailable or std::invalid_argument, naming `op`, unless it has a GPU `id`.
CudaLibrary& LibraryWith(const char* op, int id) {
  const std::string problem = GpuProblem();
  if (!problem.empty()) throw Unavailable(detail::Message(op, "no GPU can be used: ", problem));
  CudaLibrary& library = *TheLibrary().library;
  Check(id >= 0 && id < library.NumGpus(), op, "there is no GPU ", id, "; ", library.NumGpus(),
        library.NumGpus() == 1 ? " is there, number 0" : " are there, from number 0 on");
  return library;
}

}  // namespace

std::string GpuProblem() {
  const Opened& opened = TheLibrary();
  return opened.library ? opened.library->Problem() : opened.problem;
}

int NumGpus() { return GpuProblem().empty() ? TheLibrary().library->NumGpus() : 0; }

GpuProperties GetGpuProperties(int id) { return LibraryWith("gpu", id).Properties(id); }

DevicePtr CreateCudaDevice(int id) {
  CudaLibrary& library = LibraryWith("gpu", id);
  static std::mutex mutex;
  static auto& devices = *new std::map<int, DevicePtr>;  // never destroyed, like DefaultDevice
  const std::lock_guard<std::mutex> lock(mutex);
  DevicePtr& device = devices[id];
  if (!device || device->closed()) device = library.Open(id);
  return device;
}

std::vector<std::string> GpuReport() {
  const Opened& opened = TheLibrary();
  if (!opened.library) return {opened.problem};
  std::vector<std::string> lines = opened.library->Report();
  lines.insert(lines.begin(), opened.path);
  if (const std::string problem = opened.library->Problem(); !problem.empty())
    lines.push_back(problem);
  return lines;
}

}  // namespace singa
