#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// Returns a copy of x in the layout that convolutions on its device prefer for images of this
/// shape and type; counts as a reorder. Returns x itself if it is in an opaque layout or has no
/// elements, or if there is no preferred layout (for other ranks, types or backends).
SINGA_API Tensor ToBlocked(const Tensor& x);

}  // namespace singa
