#pragma once

// Convolutions of small images in bfloat16, and the gradients of their inputs, 32 images at a time:
// each product has one pixel of 16 images and 32 channels of it. oneDNN multiplies rows of pixels,
// which leave the rows of a tile empty where they are short, and zeros where taps lie outside.

#include <string>

#include "backend/onednn/tile_product.h"
#include "model/operation/conv_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn::tiles {

/// Why it cannot be had this way; empty when it can.
std::string RefusesSmallImages(const ConvSpec& spec);
/// Whether it is likely to be faster than oneDNN's.
bool SmallImagesPay(const ConvSpec& spec, Unit unit);
PlanPtr MakeSmallImages(const ConvSpec& spec, Unit unit);

}  // namespace singa::onednn::tiles
