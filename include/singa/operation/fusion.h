#pragma once

#include "singa/core/graph.h"

namespace singa {

/// Lets a recording of a training step, and a Graph of it, touch memory less often. On the CPU:
///
/// - ReLU behind a convolution or Linear becomes part of it, where the implementation that was
///   chosen does that too;
/// - backward through maximum pooling and the ReLU before it: what ReLU lets through is decided
///   before the gradient is spread, on the few elements of the pooling's result; what went into the
///   pooling is not kept;
/// - elementwise operations in a row become one.
///
/// Results are the same. On a GPU:
///
/// - a convolution in a 16-bit type sums up what it writes for the training batch norm behind it,
///   where cuDNN has an engine for that. The statistics then come from sums in float32, and may be
///   those of the values before they were rounded.
///
/// To be called before the recording starts.
SINGA_API void FuseTraining(Recording& recording);

/// Lets a recording of a training step, and a Graph of it, leave out sums of gradients: where what
/// a batch norm with an addition and ReLU returned went two ways, as behind a residual block, its
/// backward adds up the two gradients while it reads them. To the same bits; on all devices. To be
/// called before the recording starts.
SINGA_API void MergeGradientSums(Recording& recording);

/// Lets a recording of a training step, and a Graph of it, leave out conversions of gradients from
/// 16 to 32 bits, as behind autocast: optimizers' updates and norms of gradients read the former.
/// To the same bits; on all devices. To be called before the recording starts.
SINGA_API void SkipGradientCasts(Recording& recording);

}  // namespace singa
