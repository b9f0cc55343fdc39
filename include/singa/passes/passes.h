#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

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
  /// Results of batch norm with ReLU are computed again in backward instead of being kept, and on
  /// the CPU those of other norms and elementwise operations, too.
  bool recompute = false;
  /// With `training`, on the CPU: such results, as long as computing them again takes 2 % of the
  /// step's time at most, by estimates.
  bool recompute_cheap = false;
};

/// A limit of the memory that a step uses, and what it takes to keep it. All recordings of the step
/// share it.
struct SINGA_API MemoryLimit {
  explicit MemoryLimit(uint64_t bytes) : bytes(bytes) {}
  /// What there is besides the tensors that the step uses: `weights`, which train, and `others`.
  /// With each weight, `states` tensors move into the layout of its gradient if the host updates
  /// it. `missing` of these are still to be made.
  void Expect(const std::vector<Tensor>& weights, const std::vector<Tensor>& others, int states,
              int missing);

  /// The most bytes of all tensors that the step uses: parameters and others that outlive it,
  /// inputs, results, and the arena.
  uint64_t bytes;

  // The last recording, as far as it was rewritten.
  uint64_t outside = 0;        ///< bytes of tensors outside of the arena
  uint64_t arena = 0;          ///< bytes of the arena
  uint64_t plain = 0;          ///< bytes of the arena without a limit
  uint64_t again = 0;          ///< operations that run a second time
  uint64_t multiply_adds = 0;  ///< of these
  double share = 0;            ///< of these in the time of the step, by estimates

  /// How the results to drop were chosen in each segment, to be tried first the next time.
  struct Choice {
    uint64_t budget = 0;
    int rule = 0;
  };
  std::vector<Choice> choices;
  // What Expect was told.
  std::vector<std::pair<const void*, uint64_t>> expected;  ///< (block, bytes)
  uint64_t weights = 0;                                    ///< bytes
  uint64_t states = 0;
  uint64_t missing = 0;
};
using MemoryLimitPtr = std::shared_ptr<MemoryLimit>;

/// Has passes rewrite the operations of `recording`, and of a Graph that is made of it. To be
/// called before the recording starts.
///
/// The rewritten steps give the same bits, with two exceptions. A Graph of a step of one segment
/// folds frozen batch norm into convolutions, which rounds differently. With `fuse` on a GPU, batch
/// norm in a 16-bit type may take its statistics from sums in float32 that the convolution before
/// it makes, of values that are not rounded to 16 bits yet.
///
/// With `limit`, results are dropped and computed again until all fits, so that it takes the least
/// time by estimates. Where nothing fits, the recording raises OutOfMemory before it runs; the
/// message names the smallest limit that does.
SINGA_API void UsePasses(Recording& recording, const PassOptions& options,
                         MemoryLimitPtr limit = nullptr);

}  // namespace singa
