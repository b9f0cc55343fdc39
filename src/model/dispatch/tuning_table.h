#pragma once

// The selection's side of the table of choices (singa/dispatch/tuning.h), and its measurements.

#include <optional>
#include <string>

#include "singa/dispatch/tuning.h"

namespace singa {

/// This machine's choice for a signature.
std::optional<TuningChoice> FindChoice(const std::string& signature);
/// False: the table is empty, so no signature has to be written for a look-up.
bool HasChoices();
/// Adds a choice that was measured on this machine.
void RecordChoice(const std::string& signature, const std::string& candidate,
                  const std::string& measured);

/// Milliseconds of a candidate; none where it was not measured before.
std::optional<double> FindMeasurement(const std::string& key);
void RecordMeasurement(const std::string& key, double milliseconds);

/// Adds to TuningMachine(). Backends call it when they register.
void AddMachineFact(const std::string& fact);

}  // namespace singa
