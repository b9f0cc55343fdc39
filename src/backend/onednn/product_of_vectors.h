#pragma once

#include "model/operation/matmul_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn {

// Float32 products in which one side has one row: a vector by a matrix, a matrix by a vector, or
// the outer product of two vectors, as Linear has for a batch of one. Nothing is used twice, so
// memory is all that counts: loops of our own, which give each thread the rows of a matrix that it
// has in forward, backward and the optimizer's update, where they are still in its core's cache.

bool IsProductOfVectors(const MatMulSpec& spec);
PlanPtr MakeProductOfVectors(const MatMulSpec& spec);

}  // namespace singa::onednn
