#include "backend/cpu/pooling/average.h"
#include "backend/cpu/pooling/max.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu {
namespace {

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (spec.of_bytes()) return "its vectors are of floats";
  return spec.mode == PoolMode::kMax ? RefusesMax(spec) : RefusesAverage(spec);
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  return spec.mode == PoolMode::kMax ? MakeMax(spec) : MakeAverage(spec);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<PoolingForwardSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
  Register<PoolingBackwardSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu
