#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// One execution of an operation, and why its implementation was chosen.
struct ExplainedOp {
  std::string op;
  std::string layer;                 ///< CurrentLayer() at the time
  std::string implementation;        ///< "winograd", "onednn", "reference"
  std::string description;           ///< the plan's Describe()
  std::string why;                   ///< reason for the choice
  std::string signature;             ///< key in the table of tuning choices
  std::vector<std::string> others;   ///< candidates that were not chosen
  std::vector<std::string> reasons;  ///< for each of them: why not
  std::vector<std::string> inputs;   ///< shapes and layouts: "(32, 64, 56, 56):nhwc", "-"
  std::vector<std::string> outputs;
  /// Their names, such as "x" and "W". None of an operation on a list of tensors, nor of an
  /// elementwise function.
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  std::vector<int> may_take;  ///< for each output: the input whose memory it may reuse, or -1
  std::vector<int> takes;     ///< for each output: the input whose memory it reuses, or -1
  uint64_t workspace = 0;     ///< bytes
  double milliseconds = 0;
};

/// Starts (true) or stops keeping explanations. Switches profiling on and off as well.
SINGA_API void SetExplaining(bool enable);
/// Whether explanations are kept.
SINGA_API bool IsExplaining();
/// Returns the executions so far, in the order in which they ended. Clears them and the profile.
SINGA_API std::vector<ExplainedOp> TakeExplanations();

}  // namespace singa
