#include "backend/onednn/tiles.h"

#include <algorithm>

#include "core/round_up.h"

namespace singa::onednn::tiles {

std::string Refuses(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  if (spec.pass == ConvPass::kBackwardB) return "tiles of images are for the other passes";
  if (spec.dtype != kBFloat16) return "tiles of images are for bfloat16";
  if (spec.plain) return "tiles of images are for channels-last and blocked images";
  if (r.group != 1) return "tiles of images are for one group";
  if (spec.has_add || spec.relu) return "tiles of images add nothing and cut nothing off";
  if (r.batchsize * r.conv_height * r.conv_width == 0) return "there is nothing to sum up";
  return "";
}

bool Pays(const ConvSpec& spec, Unit unit) {
  const Recorder& r = spec.geometry;
  const bool weights = spec.pass == ConvPass::kBackwardW;
  const int64_t width = spec.pass == ConvPass::kBackwardX ? r.width : r.conv_width;
  // AVX-512 is no faster than in oneDNN, but that this multiplies zeros around small images.
  const bool small = width <= (weights || unit == Unit::kAmx ? 4 : 2);
  if (!small && !(weights && unit == Unit::kAmx)) return false;
  const int64_t images = RoundUp(r.batchsize, weights ? kDepth : kSide);
  const int64_t channels = weights ? kSide : kDepth;
  return images * 4 <= r.batchsize * 5 && std::min(r.in_channels, r.out_channels) >= channels;
}

PlanPtr MakePlan(const ConvSpec& spec, Unit unit) {
  return spec.pass == ConvPass::kBackwardW ? MakeWeightGradient(spec, unit)
                                           : MakeSmallImages(spec, unit);
}

LaneTag TagFor(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  for (const auto& tag : {LaneTagOf(spec.x_layout, r.input_shape(), spec.dtype),
                          LaneTagOf(spec.dy_layout, r.output_shape(), spec.dtype)})
    if (tag && *tag != LaneTag::nChw8c) return *tag;
  return LaneTag::nhwc;
}

}  // namespace singa::onednn::tiles
