#pragma once

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
};

/// Installs the observer, which is never destroyed.
void SetNodeObserver(const NodeObserver* observer);

/// The installed observer; null if there is none.
const NodeObserver* InstalledObserver();
/// The same; null also if it is not watching.
const NodeObserver* WatchingObserver();

}  // namespace singa
