#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// One reorder between two layouts. `reason` says who asked for it.
struct ReorderRecord {
  std::string op;
  std::string from;
  std::string to;
  uint64_t bytes = 0;
  double milliseconds = 0;
  std::string reason;
};

struct ReorderStats {
  uint64_t count = 0;
  uint64_t bytes = 0;
};

/// Reorders since the process started, over all threads.
SINGA_API ReorderStats GetReorderStats();
/// Keeps (true) a list of reorders, which TakeReorders returns and empties.
SINGA_API void RecordReorders(bool enable);
SINGA_API std::vector<ReorderRecord> TakeReorders();

}  // namespace singa
