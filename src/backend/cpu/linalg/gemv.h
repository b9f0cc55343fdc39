#pragma once

#include "model/operation/linalg/spec.h"

namespace singa::cpu {

// Float32 products with a vector: vector by matrix, matrix by vector, or the outer product of two
// vectors, as in Linear with a batch of one. No element is reused, so memory bandwidth is the
// limit. These kernels give a thread the same rows of a matrix in forward, backward and the
// optimizer's update, so that the rows are still in its core's cache.

bool IsProductOfVectors(const MatMulSpec& spec);

}  // namespace singa::cpu
