#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"

namespace singa {

/// Elements of a GPU's memory for spot checks, as float64. Inputs: memory of this type, and
/// positions in it (int64); output: as many elements.
struct ReadElementsSpec {
  DType dtype = kFloat32;

  const char* op() const { return "ReadElements"; }

  SINGA_FIELDS(dtype);
};

}  // namespace singa
