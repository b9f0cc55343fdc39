#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dispatch/kernel.h"

namespace singa {
namespace {

KernelList& ListOf(const char* spec, DeviceKind kind) {
  using Key = std::pair<std::string, DeviceKind>;
  static std::mutex mutex;
  static auto& lists = *new std::map<Key, KernelList>;
  const std::lock_guard<std::mutex> lock(mutex);
  return lists[Key(spec, kind)];
}

std::string Refusal(const Kernel& kernel, const SpecRef& spec) {
  return kernel.refuses ? kernel.refuses(spec) : std::string();
}

}  // namespace

PlanOrReason Kernel::Make(const SpecRef& spec) const {
  if (std::string reason = Refusal(*this, spec); !reason.empty())
    return PlanOrReason::None(std::move(reason));
  return make(spec);
}

std::vector<Candidate> Kernel::AllCandidates(const SpecRef& spec) const {
  if (!Refusal(*this, spec).empty()) return {};
  if (candidates) return candidates(spec);
  const PlanOrReason made = make(spec);
  if (!made) return {};
  return {{implementation, [plan = made.plan()] { return plan; }}};
}

std::vector<Candidate> Kernel::Candidates(const SpecRef& spec) const {
  std::vector<Candidate> right = AllCandidates(spec);
  std::erase_if(right, [](const Candidate& candidate) { return !candidate.defect.empty(); });
  return right;
}

const KernelList& KernelsOf(const char* spec, DeviceKind kind) {
  backend::EnsureRegistered();
  return ListOf(spec, kind);
}

const Kernel* FindKernel(const KernelList& kernels, std::string_view implementation) {
  for (const Kernel& kernel : kernels)
    if (kernel.implementation == implementation) return &kernel;
  return nullptr;
}

void AddKernel(const char* spec, DeviceKind kind, Kernel kernel) {
  KernelList& list = ListOf(spec, kind);
  const auto place = std::find_if(list.begin(), list.end(), [&](const Kernel& other) {
    return other.priority < kernel.priority;
  });
  list.insert(place, std::move(kernel));
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
  // The build decides how the path of a file begins, and its objects may differ in that.
  std::string name = file;
  name.erase(0, name.rfind("/backend/") + 1);
  KernelFiles().push_back({backend, std::move(name), function});
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
