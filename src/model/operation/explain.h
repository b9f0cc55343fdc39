#pragma once

#include <string>
#include <utility>
#include <vector>

#include "singa/core/explain.h"
#include "singa/core/plan.h"

namespace singa {

/// What a selection saw.
struct Selection {
  std::string signature;
  std::string why;
  std::vector<std::pair<std::string, std::string>> others;  ///< name, and why it was not taken
};

/// While IsExplaining(): whether nobody has said yet how this plan was selected.
bool NeedsExplanation(const PlanPtr& plan);
void Explain(const PlanPtr& plan, Selection selection);

}  // namespace singa
