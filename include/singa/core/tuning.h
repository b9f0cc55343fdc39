#pragma once

#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// What was chosen for one operation with one set of parameters, on one kind of machine.
struct TuningChoice {
  std::string signature;  ///< operation and parameters, as text
  std::string candidate;  ///< name of the choice: "winograd nhwc", "onednn jit:avx2 nhwc nhwc" ...
  std::string machine;    ///< TuningMachine() where it was made
  std::string measured;   ///< what it was chosen from: "1.25 ms winograd nhwc, 1.4 ms ..."
};

/// The table of choices: what Preference::kAutotune measured, and what was added. Both kAutotune
/// and kFastest follow it on the machine of the entry; kAutotune measures what it lacks.
SINGA_API std::vector<TuningChoice> GetTuningChoices();
/// Adds to the table, in place of entries of the same signature and machine. Plans made so far are
/// dropped if any entry chooses otherwise now.
SINGA_API void AddTuningChoices(const std::vector<TuningChoice>& choices);
SINGA_API void ClearTuningChoices();
/// Goes up whenever the table changes: plans that somebody keeps may be others now.
SINGA_API int TuningVersion();
/// Forgets how long candidates took, so that they are measured afresh. Choices stay.
SINGA_API void ForgetMeasurements();

/// CPU, instruction set, libraries and threads: a choice by timing holds where all of them agree.
SINGA_API std::string TuningMachine();

/// What kAutotune chooses from. "": everything. "default": what kFastest takes, which is only
/// noted. A layout's tag such as "nhwc": what leaves images in it, where anything does. After
/// `seconds` it is "default".
SINGA_API void SetTuningScope(const std::string& scope, double seconds = 1e9);
SINGA_API std::string GetTuningScope();

}  // namespace singa
