#pragma once

#include <cstdint>
#include <functional>

#include "singa/core/node.h"

namespace singa {

/// Functions of the operation layer that watch recorded nodes run. The core knows no operation, so
/// the layer above installs them.
struct NodeObserver {
  /// Whether `run` is to be called for all nodes at present. It is called in any case for nodes
  /// whose plans are watched (Plan::watch).
  bool (*watching)();
  /// Runs the node by `execute` and looks at the results. Returns false, without running it, if it
  /// has no interest in the node.
  bool (*run)(const Node& node, const std::function<void()>& execute);
  /// Whether run number `run` of a watched plan is looked at.
  bool (*is_turn)(uint32_t run);
};

/// Installs the observer, which is never destroyed.
void SetNodeObserver(const NodeObserver* observer);

/// While it lives, this thread runs nodes without the observer, since it captures them.
class UnobservedScope {
 public:
  UnobservedScope();
  ~UnobservedScope();
  UnobservedScope(const UnobservedScope&) = delete;
  UnobservedScope& operator=(const UnobservedScope&) = delete;
};

/// Whether this thread is in such a scope.
bool IsUnobserved();

/// The installed observer; null if there is none, and in an UnobservedScope.
const NodeObserver* InstalledObserver();
/// The same; null also if it is not watching.
const NodeObserver* WatchingObserver();

}  // namespace singa
