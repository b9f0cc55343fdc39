#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "model/operation/kernel.h"

namespace singa {
namespace {

KernelList& ListOf(const char* spec, DeviceKind kind) {
  using Key = std::pair<std::string, DeviceKind>;
  static std::mutex mutex;
  static auto& lists = *new std::map<Key, KernelList>;
  const std::lock_guard<std::mutex> lock(mutex);
  return lists[Key(spec, kind)];
}

}  // namespace

const KernelList& KernelsOf(const char* spec, DeviceKind kind) {
  backend::EnsureRegistered();
  return ListOf(spec, kind);
}

void AddKernel(const char* spec, DeviceKind kind, std::unique_ptr<AnyKernel> kernel) {
  ListOf(spec, kind).push_back(std::move(kernel));
}

void backend::EnsureRegistered() {
  static const bool registered = (RegisterAll(), true);
  (void)registered;
}

}  // namespace singa
