// Which convolutions the depthwise loops are offered for.

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cpu/batch_blocked/product.h"
#include "backend/cpu/depthwise/convolution.h"
#include "backend/cpu/depthwise/images.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu::depthwise {
namespace {

constexpr const char* kSlower = "oneDNN is faster for these groups of 8 channels";

/// False where oneDNN is faster for groups of 8 channels: with bfloat16 instructions, for pairs of
/// groups, which are joined, and for the gradient of the weights in vectors of 8 channels.
bool Pays(const ConvSpec& spec) {
  if (spec.geometry.in_channels / spec.geometry.group != 8) return true;
  if (spec.dtype == kBFloat16 && spec.geometry.group % 2 == 0 &&
      batch_blocked::BestUnit() != batch_blocked::Unit::kPlain)
    return false;
  return spec.pass != ConvPass::kBackwardW || BestLanes() == 16;
}

/// Candidates for the present layouts and for each other one.
std::vector<Candidate> Candidates(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  const auto x = LaneLayouts(r.input_shape(), spec.dtype);
  const auto y = LaneLayouts(r.output_shape(), spec.dtype);
  std::vector<Candidate> found;
  for (size_t i = 0; i <= x.size(); ++i) {
    ConvSpec wanted = spec;
    if (i > 0) wanted.x_layout = x[i - 1], wanted.dy_layout = y[i - 1];
    const PlanPtr plan = MakePlan(wanted);
    const std::string name = plan->Describe() + " " + LayoutName(plan->input_layout(0));
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Candidate& other) { return other.name == name; });
    if (!known) found.push_back({name, [plan] { return plan; }, 0, Pays(spec) ? "" : kSlower});
  }
  return found;
}

}  // namespace
}  // namespace singa::cpu::depthwise

namespace singa::cpu {

SINGA_KERNELS(cpu) {
  Register<ConvSpec>(DeviceKind::kCpu, "depthwise",
                     {.refuses = [](const ConvSpec& spec) { return depthwise::Refuses(spec); },
                      .make = [](const ConvSpec& spec) -> PlanOrReason {
                        if (!depthwise::Pays(spec)) return PlanOrReason::None(depthwise::kSlower);
                        return depthwise::MakePlan(spec);
                      },
                      .candidates = depthwise::Candidates,
                      .priority = 2});
  Register<NormConvSpec>(
      DeviceKind::kCpu, "depthwise",
      {.refuses = [](const NormConvSpec& spec) { return depthwise::Refuses(spec); },
       .make = [](const NormConvSpec& spec) -> PlanOrReason { return depthwise::MakePlan(spec); }});
  Register<ExpandConvSpec>(
      DeviceKind::kCpu, "depthwise",
      {.refuses = [](const ExpandConvSpec& spec) { return depthwise::Refuses(spec); },
       .make = [](const ExpandConvSpec& spec) -> PlanOrReason {
         return depthwise::MakePlan(spec);
       }});
}

}  // namespace singa::cpu
