#include "model/passes/passes.h"

#include <utility>

#include "core/graph/eager_scope.h"
#include "model/passes/memory_limit.h"

namespace singa {
namespace {

struct Pass {
  PassPhase phase;
  bool (*applies)(const PassOptions& options, const RecordedStep& step);
  RewriteNodes rewrite;
};

bool Trains(const PassOptions& options, const RecordedStep&) { return options.training; }

bool TrainsOnCpu(const PassOptions& options, const RecordedStep& step) {
  return options.training && step.device()->kind() == DeviceKind::kCpu;
}

bool FusesOnCpu(const PassOptions& options, const RecordedStep& step) {
  return options.training && options.fuse && step.device()->kind() == DeviceKind::kCpu;
}

bool FusesOnGpu(const PassOptions& options, const RecordedStep& step) {
  return options.training && options.fuse && step.device()->kind() != DeviceKind::kCpu;
}

bool Recomputes(const PassOptions& options, const RecordedStep&) { return options.recompute; }

// Estimates of time are those of a CPU.
bool RecomputesCheap(const PassOptions& options, const RecordedStep& step) {
  return options.recompute_cheap && !options.recompute && TrainsOnCpu(options, step);
}

bool RecomputesOnCpu(const PassOptions& options, const RecordedStep& step) {
  return options.recompute && TrainsOnCpu(options, step);
}

bool HasOneSegment(const PassOptions&, const RecordedStep& step) {
  return step.segments().size() == 1;
}

bool InfersInOneSegment(const PassOptions& options, const RecordedStep& step) {
  return !options.training && HasOneSegment(options, step);
}

// Passes run from top to bottom, in two phases.
//
// The passes of kSegment rewrite a segment before its first run. So the recorded steps already need
// the memory of the replayed ones, which matters most for recomputation. Two recordings are
// compared after these passes.
//
// The passes of kGraph need what is known only at the end: that the step has one segment, and that
// two recordings are equal. They may round differently, because the recorded steps have run before.
// They may mark nodes as preparation, whose results a Graph keeps from one replay to the next.
constexpr Pass kPasses[] = {
    // Before elementwise chains, which would take in the sums and conversions.
    {PassPhase::kSegment, Trains, MergeGradientSums},
    {PassPhase::kSegment, Trains, SkipGradientCasts},
    // After conversions of gradients, which updates read before the conversion.
    {PassPhase::kSegment, Trains, UpdateEarly},
    // Before elementwise chains, which would take in the ReLU.
    {PassPhase::kSegment, TrainsOnCpu, PassReluThroughPooling},
    {PassPhase::kSegment, FusesOnCpu, FuseRelu},
    // After all passes that look for single elementwise operations: a chain has no Spec.
    {PassPhase::kSegment, FusesOnCpu, ChainElementwise},
    {PassPhase::kSegment, FusesOnGpu, TakeStatisticsInConvolutions},
    // After FuseRelu, which looks for plain convolutions.
    {PassPhase::kSegment, TrainsOnCpu, NormalizeInConvolutions},
    // After convolution statistics, since it computes such batch norms again without the sums. The
    // last of the phase, since they depend on how far apart the uses of a result are.
    {PassPhase::kSegment, Recomputes, RecomputeNormalized},
    {PassPhase::kSegment, RecomputesOnCpu, RecomputeElementwise},
    {PassPhase::kSegment, RecomputesCheap, RecomputeCheap},

    {PassPhase::kGraph, InfersInOneSegment, FoldForInference},
    // After folding, which leaves reorders of weights that it no longer uses.
    {PassPhase::kGraph, HasOneSegment, DropUnused},
    // After all passes that add nodes which depend on parameters alone.
    {PassPhase::kGraph, HasOneSegment, MarkPreparation},
};

/// Runs the passes of `phase` that apply, in order.
std::vector<Node> RunPasses(const PassOptions& options, PassPhase phase, const RecordedStep& step,
                            std::vector<Node> nodes) {
  for (const Pass& pass : kPasses) {
    if (pass.phase != phase || !pass.applies(options, step)) continue;
    const EagerScope scope;  // passes set the layer of operations that they plan
    nodes = pass.rewrite(step, std::move(nodes));
  }
  return nodes;
}

}  // namespace

void UsePasses(Recording& recording, const PassOptions& options, MemoryLimitPtr limit) {
  recording.step().SetRewriter([options, limit = std::move(limit)](PassPhase phase,
                                                                   const RecordedStep& step,
                                                                   std::vector<Node> nodes) {
    nodes = RunPasses(options, phase, step, std::move(nodes));
    // After all passes of a segment, which change what there is to be dropped.
    return limit && phase == PassPhase::kSegment ? FitIntoLimit(step, std::move(nodes), *limit)
                                                 : nodes;
  });
}

}  // namespace singa
