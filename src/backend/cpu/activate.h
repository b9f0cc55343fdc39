#pragma once

// Activations over the output of a primitive. oneDNN's fused ReLU turns NaN into 0 (x86's maximum
// returns the second operand), which would hide that a network has diverged.

#include <cstdint>

#include "singa/core/dtype.h"
#include "singa/operation/activation.h"

namespace singa::cpu {

/// In place, for all float32 or bfloat16 elements in these bytes. NaN stays NaN.
void Activate(const Activation& activation, void* y, int64_t bytes, DType dtype);

}  // namespace singa::cpu
