#pragma once

#include "singa/core/graph.h"

namespace singa {

/// Rewrites a finished recording of a training step, so that a Graph of it needs less memory: what
/// batch norm with ReLU wrote is not kept for backward but computed again there, from its input and
/// the statistics, to the same bits. Returns how many results that are.
///
/// Where a residual was added, that has to be kept: of a chain of residual blocks every other one
/// is computed again. Chen et al. 2016, "Training deep nets with sublinear memory cost", with fixed
/// checkpoints: the convolutions' results.
SINGA_API int RecomputeNormalized(Recording& recording);

}  // namespace singa
