#pragma once

#include <string_view>

#include "model/operation/conv/spec.h"

namespace singa::onednn {

/// A convolution by one of oneDNN's implementations.
struct ConvolutionCall {
  std::string_view implementation;  ///< oneDNN's name, such as "jit:avx2"
  bool transposed;
  const ConvSpec& spec;
  LayoutPtr x, y;  ///< of the images, or of their gradients; null: row-major
};

/// What is wrong with some calls of an implementation.
struct Defect {
  const char* what;
  bool crashes = false;  ///< the call ends the process, so that no check may run it
};

/// The defect that concerns this call; null where none is known. Kernels of oneDNN that are wrong
/// for some calls are never chosen for these, by default, by measuring or from a table of choices.
/// `python -m singa doctor --kernels` compares all implementations with `reference`, also those
/// that are listed here unless they crash, and reports which of them still are wrong.
const Defect* DefectOf(const ConvolutionCall& call);

/// The defect of an implementation of convolutions of bytes that concerns this geometry; null where
/// none is known.
const Defect* DefectOfBytes(std::string_view implementation, const Recorder& geometry);

}  // namespace singa::onednn
