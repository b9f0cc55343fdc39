#pragma once

#include <optional>

#include "singa/core/device.h"
#include "singa/core/node.h"

namespace singa {

/// The node that computes the result y of `node`, a batch norm in training, a second time: batch
/// norm by the statistics that the first computation has returned. It gives the same bits, and
/// leaves the running statistics alone. Its inputs are x, scale, bias, mean, variance and residual,
/// its only output is y. Nothing where `node` is something else, or where y would lie in another
/// layout.
std::optional<Node> NormalizedAgain(const Device& device, const Node& node);

}  // namespace singa
