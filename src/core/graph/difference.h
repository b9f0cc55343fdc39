#pragma once

#include <string>

#include "core/graph/recorded_step.h"

namespace singa {

/// The first difference between two recordings of one step, in words; empty if there is none.
std::string Difference(const RecordedStep& first, const RecordedStep& second);

}  // namespace singa
