#pragma once

#include "singa/core/graph.h"

namespace singa {

/// Rewrites a finished recording of one segment, so that a Graph of it computes the same, up to
/// rounding, with less work:
///
/// - batch norm by frozen statistics goes into the filters and biases of the convolution before it;
/// - what is added to a convolution, and ReLU behind a convolution or Linear, become part of them;
/// - what depends on parameters only (folded filters, reorders of weights) is computed once, and
///   again when a parameter has changed.
///
/// Only results that nobody but the next operation reads disappear, so a step that keeps them for a
/// backward pass stays as it is. Does nothing to a recording of several segments.
SINGA_API void OptimizeForInference(Recording& recording);

}  // namespace singa
