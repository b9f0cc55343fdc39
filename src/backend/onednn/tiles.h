#pragma once

// Convolutions in bfloat16 by tiles of many images (tile_product.h), where oneDNN works on rows of
// pixels of one image:
//
// - gradients of filters, whose sums over 32 images at a time are long (weight_gradient.cc);
// - forward and the gradient of the input of images so small that rows of pixels leave tiles empty,
//   and taps outside of the image are many (small_images.cc).

#include <cstdint>
#include <string>

#include "backend/onednn/channel_lanes.h"
#include "backend/onednn/tile_product.h"
#include "core/cache_size.h"
#include "model/operation/conv_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn::tiles {

/// Why tiles cannot be taken for this pass; empty when they can.
std::string Refuses(const ConvSpec& spec);
/// Whether they are likely to be faster than oneDNN's convolution.
bool Pays(const ConvSpec& spec, Unit unit = BestUnit());
PlanPtr MakePlan(const ConvSpec& spec, Unit unit = BestUnit());

/// The parts of MakePlan. `cache`: bytes of a core's second level cache, which decide how the work
/// is cut.
PlanPtr MakeWeightGradient(const ConvSpec& spec, Unit unit,
                           int64_t cache = SecondLevelCacheBytes());
PlanPtr MakeSmallImages(const ConvSpec& spec, Unit unit);

/// The layout of x and y: as one of them comes, if that can be packed.
LaneTag TagFor(const ConvSpec& spec);

}  // namespace singa::onednn::tiles
