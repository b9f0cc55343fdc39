#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "model/dispatch/kernel.h"

namespace singa {
namespace {

struct Kernels {
  KernelList list;
  size_t first = 0;  // number of kernels with AskedFirst::kYes
};

Kernels& KernelsFor(const char* spec, DeviceKind kind) {
  using Key = std::pair<std::string, DeviceKind>;
  static std::mutex mutex;
  static auto& lists = *new std::map<Key, Kernels>;
  const std::lock_guard<std::mutex> lock(mutex);
  return lists[Key(spec, kind)];
}

}  // namespace

const KernelList& KernelsOf(const char* spec, DeviceKind kind) {
  backend::EnsureRegistered();
  return KernelsFor(spec, kind).list;
}

void AddKernel(const char* spec, DeviceKind kind, std::unique_ptr<AnyKernel> kernel,
               AskedFirst first) {
  Kernels& kernels = KernelsFor(spec, kind);
  if (first == AskedFirst::kYes) {
    const auto place = kernels.list.begin() + static_cast<std::ptrdiff_t>(kernels.first++);
    kernels.list.insert(place, std::move(kernel));
  } else {
    kernels.list.push_back(std::move(kernel));
  }
}

namespace {

struct KernelFile {
  std::string backend, file;
  void (*function)();
};

std::vector<KernelFile>& KernelFiles() {
  static auto& files = *new std::vector<KernelFile>;
  return files;
}

}  // namespace

Registrar::Registrar(const char* backend, const char* file, void (*function)()) {
  KernelFiles().push_back({backend, file, function});
}

void RegisterBackend(const char* backend) {
  std::vector<KernelFile> files;
  std::erase_if(KernelFiles(), [&](const KernelFile& file) {
    if (file.backend == backend) files.push_back(file);
    return file.backend == backend;
  });
  std::sort(files.begin(), files.end(),
            [](const KernelFile& a, const KernelFile& b) { return a.file < b.file; });
  for (const KernelFile& file : files) file.function();
}

void backend::EnsureRegistered() {
  static const bool registered = (RegisterAll(), true);
  (void)registered;
}

}  // namespace singa
