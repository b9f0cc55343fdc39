#pragma once

#include <cstdint>

#include "model/operation/rnn/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::rnn {

/// Plans for float32 and 16-bit types, with vectors of 8 or 16 floats, on any CPU.
PlanPtr MakePlan(const RnnForwardSpec& spec, int64_t lanes);
PlanPtr MakePlan(const RnnBackwardSpec& spec, int64_t lanes);

}  // namespace singa::cpu::rnn
