#pragma once

#include <span>
#include <string>

#include "singa/core/node.h"

namespace singa {

/// The name of a node that replaces these, such as "ConvForward+Relu". It is never freed.
const char* MergedOp(std::span<const Node* const> nodes);
/// The layers of the nodes, each once, joined by "+".
std::string MergedLayer(std::span<const Node* const> nodes);

}  // namespace singa
