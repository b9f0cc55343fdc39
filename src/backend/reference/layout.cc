#include "model/operation/layout_spec.h"

#include "backend/reference/register.h"
#include "model/operation/kernel.h"

namespace singa::reference {
namespace {

void RunNothing(const PreferredLayoutSpec&, const Execution&) {}

}  // namespace

void RegisterLayout() {
  RegisterFunction<kReference, PreferredLayoutSpec, RunNothing>(DeviceKind::kCpu);
}

}  // namespace singa::reference
