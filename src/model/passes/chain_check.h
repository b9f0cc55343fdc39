#pragma once

#include "singa/core/node.h"

namespace singa {

/// Lets OPCHECK compare the node of a ChainPlan. It runs the operations of the chain again, one
/// after the other on whole tensors, compares each of them with `reference`, and the results of the
/// chain with theirs, bit by bit.
void MakeChecked(Node* chain);

}  // namespace singa
