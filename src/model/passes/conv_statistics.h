#pragma once

#include <vector>

#include "singa/core/graph.h"

namespace singa {

/// The nodes of one segment, with convolutions that sum up what they write for the batch norm
/// behind them, where the device has a kernel for that: forward of a batch norm then reads x once.
/// In 16-bit types alone: from sums of squares in float32 a variance far below the squared mean has
/// few digits left, but of values that were rounded to 8 or 11 bits it had few to begin with.
std::vector<Node> TakeStatisticsInConvolutions(const Recording& recording, std::vector<Node> nodes);

}  // namespace singa
