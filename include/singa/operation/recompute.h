#pragma once

#include "singa/core/graph.h"

namespace singa {

/// Lets a recording of a training step, and a Graph of it, need less memory: what batch norm with
/// ReLU wrote is not kept for backward but computed again there, from its input and the statistics,
/// to the same bits. To be called before the recording starts.
///
/// Where a residual was added, that has to be there: of a chain of residual blocks two of three
/// sums are computed again, one from the other. Chen et al. 2016, "Training deep nets with
/// sublinear memory cost", with fixed checkpoints: the convolutions' results and the third sums.
SINGA_API void RecomputeNormalized(Recording& recording);

}  // namespace singa
