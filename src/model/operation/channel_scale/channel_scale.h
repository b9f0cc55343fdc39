#pragma once

// Products of images and one number per channel, without a reorder.

#include <optional>
#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// a · b where one is an image (N, C, H, W) on a CPU, in a layout with channels innermost, and the
/// other is (N, C, 1, 1), (N, 1, 1, 1), (1, C, 1, 1) or (C, 1, 1), of the same type; else nothing.
std::optional<Tensor> ScaleChannels(const Tensor& a, const Tensor& b);
/// The gradients of a and b in such a product, or in one with a number; empty where not needed.
/// Here dy may be the tensor that has the layout.
std::optional<std::vector<Tensor>> ScaleChannelsBackward(const Tensor& dy, const Tensor& a,
                                                         const Tensor& b, bool need_a, bool need_b);

}  // namespace singa
