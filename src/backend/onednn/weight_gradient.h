#pragma once

// The gradient of a convolution's filter in bfloat16, as sums of products over 32 images at a time.
// oneDNN sums over the pixels of a row, of which small images have few, and transposes x and dy for
// each block of weights.

#include <string>

#include "backend/onednn/tile_product.h"
#include "core/cache_size.h"
#include "model/operation/conv_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn::tiles {

/// Why it cannot be had this way; empty when it can.
std::string RefusesWeightGradient(const ConvSpec& spec);
/// Whether it is likely to be faster than oneDNN's.
bool WeightGradientPays(const ConvSpec& spec, Unit unit);
/// `cache`: bytes of a core's second level cache, which decide how the work is cut.
PlanPtr MakeWeightGradient(const ConvSpec& spec, Unit unit,
                           int64_t cache = SecondLevelCacheBytes());

}  // namespace singa::onednn::tiles
