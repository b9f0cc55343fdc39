#pragma once

// Bfloat16 convolutions with tiles of many images (product.h); oneDNN's tiles are rows of pixels of
// one image. They serve
//
// - weight gradients, whose sums extend over 32 images at a time (weight_gradient.cc);
// - forward and input gradients of images so small that rows of pixels would leave tiles empty, and
//   many taps are outside the image (small_images.cc).

#include <cstdint>
#include <string>

#include "backend/cpu/batch_blocked/product.h"
#include "core/device/cache_size.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::batch_blocked {

/// The reason why the tiles do not support this pass; empty if they do.
std::string Refuses(const ConvSpec& spec);
/// Whether they are likely to be faster than oneDNN's convolution.
bool Pays(const ConvSpec& spec, Unit unit = BestUnit());
PlanPtr MakePlan(const ConvSpec& spec, Unit unit = BestUnit());

/// The parts of MakePlan. `cache`: bytes of a core's L2 cache, which determine how the work is
/// divided.
PlanPtr MakeWeightGradient(const ConvSpec& spec, Unit unit,
                           int64_t cache = SecondLevelCacheBytes());
PlanPtr MakeSmallImages(const ConvSpec& spec, Unit unit);

/// The layout of x and y: the present layout of one of them, if it can be packed.
LaneTag TagFor(const ConvSpec& spec);

}  // namespace singa::cpu::batch_blocked
