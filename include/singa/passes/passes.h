#pragma once

#include "singa/core/graph.h"

namespace singa {

/// What a step is recorded for. Passes rewrite its operations accordingly;
/// src/model/passes/passes.cc lists them.
struct PassOptions {
  /// A training step. Sums and conversions of gradients become part of other operations, and on the
  /// CPU a batch norm that of a depthwise convolution behind it.
  bool training = false;
  /// With `training`: operations that follow each other become one, where that saves a pass over
  /// memory.
  bool fuse = false;
  /// Results of batch norm with ReLU are computed again in backward instead of being kept.
  bool recompute = false;
};

/// Has passes rewrite the operations of `recording`, and of a Graph that is made of it. To be
/// called before the recording starts.
///
/// The rewritten steps give the same bits, with two exceptions. A Graph of a step of one segment
/// folds frozen batch norm into convolutions, which rounds differently. With `fuse` on a GPU, batch
/// norm in a 16-bit type may take its statistics from sums in float32 that the convolution before
/// it makes, of values that are not rounded to 16 bits yet.
SINGA_API void UsePasses(Recording& recording, const PassOptions& options);

}  // namespace singa
