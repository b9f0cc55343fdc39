#include "backend/cpu/batch_blocked/convolution.h"

#include <algorithm>

#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu::batch_blocked {

std::string Refuses(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  if (spec.pass == ConvPass::kBackwardB) return "tiles of images are for the other passes";
  if (spec.dtype != kBFloat16) return "tiles of images are for bfloat16";
  if (spec.plain) return "tiles of images are for channels-last and blocked images";
  if (r.spatial != 2) return "tiles of images are for images (N, C, H, W)";
  if (r.group != 1) return "tiles of images are for one group";
  if (spec.has_add || spec.activation) return "tiles of images add nothing and have no activation";
  if (r.batchsize * r.conv_height() * r.conv_width() == 0) return "there is nothing to sum up";
  return "";
}

bool Pays(const ConvSpec& spec, Unit unit) {
  const Recorder& r = spec.geometry;
  const bool weights = spec.pass == ConvPass::kBackwardW;
  const int64_t width = spec.pass == ConvPass::kBackwardX ? r.width() : r.conv_width();
  // AVX-512 is no faster than oneDNN, except that oneDNN multiplies the zeros around small images.
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
    if (tag && *tag != LaneTag::kNChw8c) return *tag;
  return LaneTag::kNhwc;
}

}  // namespace singa::cpu::batch_blocked

namespace singa::cpu {
namespace {

std::string Refuses(const ConvSpec& spec) {
  if (batch_blocked::BestUnit() == batch_blocked::Unit::kPlain)
    return "tiles of images are for CPUs with AMX, or AVX-512 and bfloat16";
  return batch_blocked::Refuses(spec);
}
constexpr const char* kSlower = "tiles of images would be largely empty, or oneDNN's are full";

PlanOrReason Make(const ConvSpec& spec) {
  if (!batch_blocked::Pays(spec)) return PlanOrReason::None(kSlower);
  return batch_blocked::MakePlan(spec);
}

std::vector<Candidate> Candidates(const ConvSpec& spec) {
  const PlanPtr plan = batch_blocked::MakePlan(spec);
  return {{plan->Describe() + " " + LayoutName(plan->input_layout(0)), [plan] { return plan; }, 0,
           batch_blocked::Pays(spec) ? "" : kSlower}};
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ConvSpec>(DeviceKind::kCpu, "tiles",
                     {.refuses = Refuses, .make = Make, .candidates = Candidates, .priority = 1});
}

}  // namespace singa::cpu
