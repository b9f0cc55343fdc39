#pragma once

#include <string>
#include <utility>
#include <vector>

#include "singa/core/plan.h"
#include "singa/dispatch/explain.h"

namespace singa {

/// The course of a selection.
struct Selection {
  std::string signature;
  std::string why;
  std::vector<std::pair<std::string, std::string>> others;  ///< name, and why it was not taken
  std::vector<std::string> input_names;                     ///< none where they are not declared
  std::vector<std::string> output_names;
};

/// While IsExplaining(): whether Explain was not called for this plan yet.
bool NeedsExplanation(const PlanPtr& plan);
void Explain(const PlanPtr& plan, Selection selection);

}  // namespace singa
