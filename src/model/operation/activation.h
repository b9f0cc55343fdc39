#pragma once

#include <string>

#include "model/dispatch/spec.h"
#include "model/formula/activation.h"
#include "singa/core/error.h"
#include "singa/operation/activation.h"

namespace singa {

/// Raises std::invalid_argument for an unknown kind, for limits that are NaN or in the wrong order,
/// and for limits of a function that has none.
inline void CheckActivation(const char* op, const Activation& activation) {
  const auto kind = static_cast<int>(activation.kind);
  Check(kind >= 0 && kind < kEnumSize<ActivationKind>, op, "activation must be in [0, ",
        kEnumSize<ActivationKind>, "), got ", kind);
  if (activation.kind == ActivationKind::kClip) {
    Check(activation.low <= activation.high, op, "the activation's limits must be in order, got ",
          activation.low, " and ", activation.high);
  } else {
    Check(activation.low == 0 && activation.high == 0, op, "only a clip has limits, got ",
          activation.low, " and ", activation.high);
  }
}

/// For descriptions of plans: " + relu", or "" for none.
inline std::string ActivationSuffix(const Activation& activation) {
  const char* name = formula::FactsOf(activation.kind).name;
  return activation ? std::string(" + ") + name : "";
}

}  // namespace singa
