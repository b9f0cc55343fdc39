#pragma once

// Passes rewrite the nodes of recorded steps, so that they need less work or memory. passes.cc has
// the list of all passes.

#include <vector>

#include "core/graph/recorded_step.h"
#include "singa/passes/passes.h"

namespace singa {

/// A function that rewrites the nodes of one segment of `step`. The new nodes give the same
/// results. Blocks that the step does not know are temporaries.
using RewriteNodes = std::vector<Node> (*)(const RecordedStep& step, std::vector<Node> nodes);

// The passes. Each has a file of its own, except the last three, which are in inference.cc.

/// Leaves out sums of gradients. Where the result of a batch norm with addition and ReLU went two
/// ways, as behind a residual block, batch norm's backward reads the two gradients instead of their
/// sum. The same bits.
std::vector<Node> MergeGradientSums(const RecordedStep& step, std::vector<Node> nodes);

/// Leaves out conversions of gradients from 16 to 32 bits, as behind autocast. Updates of the
/// optimizer and norms of gradients read the 16-bit gradients. The same bits.
std::vector<Node> SkipGradientCasts(const RecordedStep& step, std::vector<Node> nodes);

/// Updates parameters as soon as their gradients are there and nothing reads the old values any
/// more, some MiB at a time, so that gradients need not be kept until backward has ended. The same
/// bits.
std::vector<Node> UpdateEarly(const RecordedStep& step, std::vector<Node> nodes);

/// Has depthwise convolutions compute the result of the batch norm in front of them where they read
/// it, in forward and for the gradient of the filters, so that it is neither written nor kept.
/// Batch norm itself computes its statistics only. The same bits.
std::vector<Node> NormalizeInConvolutions(const RecordedStep& step, std::vector<Node> nodes);

/// In backward through maximum pooling of ReLU's result, applies ReLU to the gradient of the
/// pooling's result, which has fewer elements. The pooling's input is then not kept. The same bits.
std::vector<Node> PassReluThroughPooling(const RecordedStep& step, std::vector<Node> nodes);

/// ReLU behind a convolution or Linear becomes part of it, if the chosen implementation computes it
/// without another layout or more workspace. The same bits.
std::vector<Node> FuseRelu(const RecordedStep& step, std::vector<Node> nodes);

/// Merges elementwise operations that follow each other and work on the same elements into one
/// node. That node runs all of them over one piece of the elements after the other, so intermediate
/// results stay in the cache. Memory is written only where other nodes read it. The same bits,
/// because the same plans run.
std::vector<Node> ChainElementwise(const RecordedStep& step, std::vector<Node> nodes);

/// Has convolutions sum up their results for the batch norm behind them, if the device has a kernel
/// for that. Forward of batch norm then reads its input once. Only in 16-bit types: a variance far
/// below the squared mean loses digits in sums of squares in float32, but values that are rounded
/// to 8 or 11 bits have few digits of it to begin with.
std::vector<Node> TakeStatisticsInConvolutions(const RecordedStep& step, std::vector<Node> nodes);

/// Drops the results of batch norm with ReLU after forward. Backward computes them again from batch
/// norm's input and statistics. The same bits.
///
/// A residual that batch norm adds is computed again before. In a chain of residual blocks, two of
/// three sums are dropped. This is Chen et al. 2016, "Training deep nets with sublinear memory
/// cost", with the convolutions' results and every third sum as checkpoints.
std::vector<Node> RecomputeNormalized(const RecordedStep& step, std::vector<Node> nodes);

/// Drops results of norms and elementwise operations where the segment needs most memory, if their
/// inputs are kept anyway, and computes them again where backward reads them: those that cost least
/// for their bytes first, as long as all second runs take 2 % of the segment's time by estimates.
/// Leaves segments alone whose temporaries take less than 32 MiB. The same bits.
std::vector<Node> RecomputeCheap(const RecordedStep& step, std::vector<Node> nodes);

/// The same, of segments of all sizes and as long as it saves memory.
std::vector<Node> RecomputeElementwise(const RecordedStep& step, std::vector<Node> nodes);

/// Makes one node of a convolution or Linear and what is around it:
///
/// - batch norm by frozen statistics, and products and sums with one constant number per channel,
/// go
///   into the filters and biases of the convolution before them;
/// - zeros in front of a convolution become padding of its own;
/// - an addition behind a convolution, and ReLU behind a convolution or Linear, become part of it.
///
/// Only results that nothing but the next operation reads disappear, so a step that keeps them for
/// backward stays as it is. Folding batch norm rounds differently.
std::vector<Node> FoldForInference(const RecordedStep& step, std::vector<Node> nodes);

/// Drops nodes whose results nothing reads.
std::vector<Node> DropUnused(const RecordedStep& step, std::vector<Node> nodes);

/// Marks nodes that depend on parameters alone (Node::prepares), such as folded filters and
/// reorders of weights.
std::vector<Node> MarkPreparation(const RecordedStep& step, std::vector<Node> nodes);

}  // namespace singa
