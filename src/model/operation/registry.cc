#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "model/operation/kernel.h"

namespace singa {

std::vector<std::unique_ptr<AnyKernel>>& KernelsOf(const char* spec, DeviceKind kind) {
  using Key = std::pair<std::string, DeviceKind>;
  static std::mutex mutex;
  static auto& lists = *new std::map<Key, std::vector<std::unique_ptr<AnyKernel>>>;
  const std::lock_guard<std::mutex> lock(mutex);
  return lists[Key(spec, kind)];
}

}  // namespace singa
