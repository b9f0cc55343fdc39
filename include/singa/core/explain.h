#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// One execution of an operation, with how its implementation was found.
struct ExplainedOp {
  std::string op;
  std::string layer;                 ///< where Python says which
  std::string implementation;        ///< "winograd", "onednn", "reference"
  std::string description;           ///< what the plan says of itself
  std::string why;                   ///< it was chosen
  std::string signature;             ///< under which the table of choices knows it
  std::vector<std::string> others;   ///< kernels and their ways that were not chosen ...
  std::vector<std::string> reasons;  ///< ... and why
  std::vector<std::string> inputs;   ///< shapes and layouts: "(32, 64, 56, 56):nhwc", "-"
  std::vector<std::string> outputs;
  std::vector<int> may_take;  ///< for each output: the input whose memory it may take over, or -1
  std::vector<int> takes;     ///< and the one whose memory it has
  uint64_t workspace = 0;     ///< bytes
  double milliseconds = 0;
};

/// Keeps what is needed to explain each execution, until it is switched off. Profiles meanwhile.
SINGA_API void SetExplaining(bool enable);
SINGA_API bool IsExplaining();
/// What ran so far, in the order in which it ended; the list is then empty, and so is the profile.
SINGA_API std::vector<ExplainedOp> TakeExplanations();

}  // namespace singa
