// A second kernel for the operation of the page, which is right: OPCHECK has something to compare
// with `reference`, and calls CheckCall.

#include "model/operation/unit_rows/spec.h"
#include "wrong_kernels/wrong_kernel.h"

namespace singa::test {

template <class Spec>
void AddSecond() {
  const char* spec = typeid(Spec).name();
  AddKernel(spec, DeviceKind::kCpu, WrongKernel(spec, Wrong::kNever, DeviceKind::kCpu));
}

SINGA_KERNELS(reference) {
  AddSecond<UnitRowsSpec>();
  AddSecond<UnitRowsBackwardSpec>();
}

}  // namespace singa::test
