#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

class Plan;

/// One reorder between two layouts. `reason` says who asked for it.
struct ReorderRecord {
  std::string op;     ///< that wanted it, if one did
  std::string layer;  ///< in which, where Python says
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

/// One execution of an operation, or a reorder, while profiling.
struct ProfileRecord {
  std::string op;
  std::string layer;
  std::string implementation;  ///< what the plan says of itself
  std::string shapes;          ///< of inputs and outputs: "(2, 3) (3, 4) -> (2, 4)"
  double start = 0;            ///< milliseconds since some fixed time
  double milliseconds = 0;
  uint64_t workspace = 0;            ///< bytes
  uint64_t bytes = 0;                ///< of inputs and outputs, as they lie
  int64_t multiply_adds = 0;         ///< products of a convolution, linear map or network; else 0
  std::shared_ptr<const Plan> plan;  ///< null for a reorder
  std::vector<std::string> inputs;   ///< shapes and layouts: "(2, 3, 4, 4):nhwc", "-"
  std::vector<std::string> outputs;
  std::vector<int> takes;  ///< for each output: the input whose memory it has, or -1
};

/// Times every operation of every thread, until it is switched off.
SINGA_API void SetProfiling(bool enable);
SINGA_API bool IsProfiling();
/// What was recorded so far, in the order in which it ended; the list is then empty.
SINGA_API std::vector<ProfileRecord> TakeProfile();

/// Name of the operation that this thread looked up a plan for last; "" at the start.
SINGA_API const char* CurrentOp();
SINGA_API void SetCurrentOp(const char* op);

/// Name of the layer that the calling thread is in, for messages and reports; set by the Python
/// layers.
SINGA_API const std::string& CurrentLayer();
SINGA_API void SetCurrentLayer(const std::string& name);

}  // namespace singa
