#pragma once

#include <functional>

#include "singa/core/node.h"

namespace singa {

/// What the operation layer does with recorded nodes as they run. The core knows no operation, so
/// it cannot call it by name.
struct NodeObserver {
  /// Whether `run` may do more than nothing at present.
  bool (*watching)();
  /// Runs the node by `execute` and looks at the results. False where it is not interested in the
  /// node; nothing has run then.
  bool (*run)(const Node& node, const std::function<void()>& execute);
};

/// Installs the observer. It lives for ever.
void SetNodeObserver(const NodeObserver* observer);

/// The installed observer; null where there is none, or where it is not watching.
const NodeObserver* WatchingObserver();

}  // namespace singa
