#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// The implementation chosen for one signature on one kind of machine.
struct TuningChoice {
  std::string signature;  ///< operation and parameters, as text
  std::string candidate;  ///< the choice, such as "winograd nhwc" or "onednn jit:avx2 nhwc nhwc"
  std::string machine;    ///< TuningMachine() when it was made
  std::string measured;   ///< all measurements: "1.25 ms winograd nhwc, 1.4 ms ..."
};

/// The table of choices, measured by Preference::kAutotune or added. On a choice's machine,
/// kAutotune and kFastest follow it. kAutotune measures signatures that are not in the table.
SINGA_API std::vector<TuningChoice> GetTuningChoices();
/// Adds choices to the table and replaces those of the same signature and machine. If this changes
/// a choice, cached plans are dropped.
SINGA_API void AddTuningChoices(const std::vector<TuningChoice>& choices);
/// Empties the table; cached plans are dropped.
SINGA_API void ClearTuningChoices();
/// A number for the choices in the table: equal for equal choices. Plans kept from under another
/// number may no longer be the chosen ones.
SINGA_API int64_t TuningVersion();
/// Forgets measured times, so that candidates are measured again. Keeps the choices.
SINGA_API void ForgetMeasurements();

/// CPU, instruction set, library versions and threads. A measured choice is valid only where all of
/// them are equal.
SINGA_API std::string TuningMachine();

/// Which candidates kAutotune considers. "": all. "default": the one that kFastest takes, which is
/// recorded without measuring. A layout's tag such as "nhwc": those whose image output has this
/// layout, or all if there are none. After `seconds` the scope becomes "default".
SINGA_API void SetTuningScope(const std::string& scope, double seconds = 1e9);
/// The scope in force.
SINGA_API std::string GetTuningScope();

}  // namespace singa
