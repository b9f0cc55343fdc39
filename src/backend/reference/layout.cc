#include "model/operation/layout/spec.h"

#include "model/dispatch/kernel.h"

namespace singa::reference {
namespace {

void RunNothing(const PreferredLayoutSpec&, const Execution&) {}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterFunction<kReference, PreferredLayoutSpec, RunNothing>(DeviceKind::kCpu);
}

}  // namespace singa::reference
