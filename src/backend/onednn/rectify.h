#pragma once

// ReLU of what a primitive has written. oneDNN's own, as an operation behind a convolution or a
// product, makes 0 of a NaN (x86 returns the second operand of a maximum), so a network that has
// diverged would answer with numbers.

#include "singa/core/tensor.h"

namespace singa::onednn {

/// In place, of all elements that the block holds: y is float32 or bfloat16, in any layout or
/// dense. NaN stays NaN.
void Rectify(const Tensor& y);

}  // namespace singa::onednn
