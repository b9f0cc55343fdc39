#include "singa/core/gpu.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/cuda_library.h"
#include "singa/core/error.h"
#include "singa/version.h"

namespace singa {
namespace {

constexpr const char* kFile = "libsinga_cuda.so";

/// The library once it was opened, or why it was not.
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
  const char* named = std::getenv("SINGA_CUDA_LIBRARY");
  opened.path = named && *named ? named : BesideThis();
  std::error_code ignored;
  if (!std::filesystem::exists(opened.path, ignored)) {
    opened.problem = named && *named
                         ? "SINGA_CUDA_LIBRARY names " + opened.path + ", which does not exist"
                         : std::string("this build of singa has no CUDA backend (") + kFile +
                               " is not beside libsinga.so)";
    return opened;
  }
  // Never closed: devices live as long as the process.
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

/// The library with a GPU of that number.
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
  static auto& devices = *new std::map<int, DevicePtr>;  // tensors may outlive everything else
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
