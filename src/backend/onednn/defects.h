#pragma once

#include <string_view>

#include "model/spec/spatial/conv.h"

namespace singa::onednn {

/// A convolution by one of oneDNN's implementations.
struct ConvolutionCall {
  std::string_view implementation;  ///< oneDNN's name, such as "jit:avx2"
  bool transposed;
  const ConvSpec& spec;
  LayoutPtr x, y;  ///< of the images, or of their gradients; null: row-major
};

/// Why the results are wrong; null where no defect is known. Kernels of oneDNN that are wrong for
/// some calls are never chosen for these, by default, by measuring or from a table of choices.
/// `python -m singa doctor --kernels` compares all implementations with `reference`, also those
/// that are listed here, and reports which of them still are wrong.
const char* DefectOf(const ConvolutionCall& call);

}  // namespace singa::onednn
