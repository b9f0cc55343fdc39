#include "model/dispatch/op_type.h"

#include <map>
#include <mutex>

#include "model/dispatch/kernel.h"

namespace singa {
namespace {

std::mutex g_mutex;

std::map<std::string, const OpType*>& Types() {  // guarded by g_mutex
  static auto& types = *new std::map<std::string, const OpType*>;
  return types;
}

}  // namespace

void AddOpType(const OpType& type) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  Types()[type.name()] = &type;
}

const OpType* FindOpType(const std::string& name) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto found = Types().find(name);
  return found == Types().end() ? nullptr : found->second;
}

std::vector<std::string> OpTypeNames() {
  backend::EnsureRegistered();
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<std::string> names;
  for (const auto& [name, type] : Types()) names.push_back(name);
  return names;
}

}  // namespace singa
