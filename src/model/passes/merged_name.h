#pragma once

#include <span>
#include <string>

#include "singa/core/node.h"

namespace singa {

/// What a node is called that stands for these: "ConvForward+Relu". Lives for ever.
const char* MergedOp(std::span<const Node* const> nodes);
/// The layers that they came from, each once.
std::string MergedLayer(std::span<const Node* const> nodes);

}  // namespace singa
