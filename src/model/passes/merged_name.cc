#include "model/passes/merged_name.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

namespace singa {
namespace {

std::string Joined(std::span<const std::string> names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : "+") + name;
  return joined;
}

}  // namespace

const char* MergedOp(std::span<const Node* const> nodes) {
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::string>& known = *new std::set<std::string>;
  std::vector<std::string> names;
  for (const Node* node : nodes) names.push_back(node->op);
  const std::lock_guard<std::mutex> lock(mutex);
  return known.insert(Joined(names)).first->c_str();
}

std::string MergedLayer(std::span<const Node* const> nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes)
    if (!node->layer.empty() && std::find(names.begin(), names.end(), node->layer) == names.end())
      names.push_back(node->layer);
  return Joined(names);
}

}  // namespace singa
