#pragma once

// The table of choices (singa/core/tuning.h) as the selection sees it, and what it remembers while
// it measures.

#include <optional>
#include <string>

#include "singa/core/tuning.h"

namespace singa {

/// This machine's choice for a signature.
std::optional<TuningChoice> FindChoice(const std::string& signature);
/// False: no lookup can find anything, so that nobody needs to write down a signature.
bool HasChoices();
/// Keeps a choice that was measured on this machine.
void RecordChoice(const std::string& signature, const std::string& candidate,
                  const std::string& measured);

/// Milliseconds of a candidate that was measured before.
std::optional<double> FindMeasurement(const std::string& key);
void RecordMeasurement(const std::string& key, double milliseconds);

/// Adds to TuningMachine(); for backends, when they register.
void AddMachineFact(const std::string& fact);

}  // namespace singa
