#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

class Plan;

/// One reorder between two layouts.
struct ReorderRecord {
  std::string op;     ///< the operation that needed it, else ""
  std::string layer;  ///< CurrentLayer() at the time
  std::string from;
  std::string to;
  uint64_t bytes = 0;
  double milliseconds = 0;
  std::string reason;
};

/// How many reorders between layouts there were, and how much they moved.
struct ReorderStats {
  uint64_t count = 0;
  uint64_t bytes = 0;
};

/// Reorders by all threads since the process started.
SINGA_API ReorderStats GetReorderStats();
/// Starts (true) or stops keeping a list of reorders, which TakeReorders returns and clears.
SINGA_API void RecordReorders(bool enable);
/// Returns the list of reorders since RecordReorders(true), and clears it.
SINGA_API std::vector<ReorderRecord> TakeReorders();

/// One execution of an operation, one reorder, or one collective that ran beside operations,
/// recorded while profiling.
struct ProfileRecord {
  std::string op;
  std::string layer;
  std::string implementation;  ///< the plan's Describe(), the layouts of a reorder, "2 ranks"
  std::string shapes;  ///< of inputs and outputs: "(2, 3) (3, 4) -> (2, 4)"; a collective's tensors
  int thread = 0;      ///< number of the thread, in the order of their first records
  double start = 0;    ///< milliseconds of a steady clock
  double milliseconds = 0;
  uint64_t workspace = 0;     ///< bytes
  uint64_t bytes = 0;         ///< of inputs and outputs, in their layouts
  int64_t multiply_adds = 0;  ///< of a convolution, matrix product or recurrent layer; else 0
  std::shared_ptr<const Plan> plan;  ///< null for a reorder and a collective
  std::vector<std::string> inputs;   ///< shapes and layouts: "(2, 3, 4, 4):nhwc", "-"
  std::vector<std::string> outputs;
  std::vector<int> takes;  ///< for each output: index of the input whose memory it reuses, or -1
};

/// Starts (true) or stops timing each operation of each thread.
SINGA_API void SetProfiling(bool enable);
/// Whether operations are timed.
SINGA_API bool IsProfiling();
/// Returns the records so far, in the order in which they ended, and clears the list.
SINGA_API std::vector<ProfileRecord> TakeProfile();

/// The operation for which this thread last looked up a plan; "" before the first one.
SINGA_API const char* CurrentOp();
/// Sets what CurrentOp returns; `op` must outlive its use.
SINGA_API void SetCurrentOp(const char* op);

/// The layer that this thread executes, for messages and reports. Python's layers set it.
SINGA_API const std::string& CurrentLayer();
/// Sets what CurrentLayer returns.
SINGA_API void SetCurrentLayer(const std::string& name);

}  // namespace singa
