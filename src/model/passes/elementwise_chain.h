#pragma once

#include <vector>

#include "singa/core/graph.h"

namespace singa {

/// Makes one node of elementwise operations in a row that work on the same elements: it takes all
/// of them over one piece of the elements after the other, so that what they hand to each other
/// stays in the cache, and takes memory only where others read it. The same bits, because the same
/// plans run.
std::vector<Node> ChainElementwise(const Recording& recording, std::vector<Node> nodes);

}  // namespace singa
