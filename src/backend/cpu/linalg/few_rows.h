#pragma once

#include "model/operation/linalg/spec.h"

namespace singa::cpu {

// Products of few rows and a matrix, as in Linear with a small batch. The matrix is read once, as
// it lies, and its elements are used a few times each. oneDNN copies some matrices first, which
// takes longer than such a product.

/// Whether the kernel is likely to be faster than oneDNN's.
bool FewRowsPay(const MatMulSpec& spec);

}  // namespace singa::cpu
