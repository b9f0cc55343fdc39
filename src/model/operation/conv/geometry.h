#pragma once

#include "singa/operation/recorder.h"

namespace singa {

/// The geometry of a handle's recorder for `input`. The recorder was checked when the handle was
/// made, so for the shape that it was made with there is nothing to check and nothing to compute.
inline Recorder GeometryFor(const char* op, const Recorder& recorder, const Shape& input) {
  return input == recorder.input_shape() ? recorder : WithInput(op, recorder, input);
}

}  // namespace singa
