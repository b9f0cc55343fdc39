// For which 1 x 1 convolutions the loops are faster.

#include <string>
#include <vector>

#include "backend/cpu/pointwise/convolution.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu::pointwise {
namespace {

/// Costs in multiply-adds of oneDNN's kernels, measured with one thread of a Zen 5 on one image of
/// MobileNetV2's and ResNet-50's layers (docs/developers/experiments.md).
struct Costs {
  double product;  // one of the loops' multiply-adds
  double fetch;    // what oneDNN waits for a value of the filters from memory
};
constexpr Costs kAvx512Costs = {1.03, 25};
#if defined(__aarch64__)
constexpr Costs kCostsOf8Lanes = kAvx512Costs;  // NEON's are not measured
#else
constexpr Costs kCostsOf8Lanes = {1.075, 11};
#endif

}  // namespace

bool Pays(const ConvSpec& spec, int64_t lanes) {
  const Costs& costs = lanes == 16 ? kAvx512Costs : kCostsOf8Lanes;
  // For each value of the filters, which is multiplied with all pixels.
  const auto pixels = static_cast<double>(spec.geometry.batchsize * spec.geometry.conv_pixels());
  return costs.product * pixels < pixels + costs.fetch;
}

namespace {

constexpr const char* kSlower = "other kernels are faster for so many pixels";

std::string RefusesHere(const ConvSpec& spec) { return Refuses(spec, BestLoops()); }

PlanOrReason Make(const ConvSpec& spec) {
  const Loops loops = BestLoops();
  if (!Pays(spec, loops.lanes)) return PlanOrReason::None(kSlower);
  return MakePlan(spec, loops);
}

std::vector<Candidate> Candidates(const ConvSpec& spec) {
  const Loops loops = BestLoops();
  const PlanPtr plan = MakePlan(spec, loops);
  return {{"pointwise " + LayoutName(plan->input_layout(0)), [plan] { return plan; }, 0,
           Pays(spec, loops.lanes) ? "" : kSlower}};
}

}  // namespace
}  // namespace singa::cpu::pointwise

namespace singa::cpu {

SINGA_KERNELS(cpu) {
  Register<ConvSpec>(DeviceKind::kCpu, "pointwise",
                     {.refuses = pointwise::RefusesHere,
                      .make = pointwise::Make,
                      .candidates = pointwise::Candidates,
                      .priority = 1});
}

}  // namespace singa::cpu
