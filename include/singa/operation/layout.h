#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// x in the layout that its device's convolutions like images of this shape and type in, as a new
/// tensor; x itself when it lies so already, and where there is none (other ranks, other types, no
/// such backend). Counted as a reorder.
SINGA_API Tensor ToBlocked(const Tensor& x);

}  // namespace singa
