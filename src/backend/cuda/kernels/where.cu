// Selection by a condition, and y += alpha·x.

#include "backend/cuda/kernels/common/map.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/formula/arithmetic.h"
#include "model/operation/elementwise/spec.h"

namespace singa::cuda {
namespace {

template <class C>
struct Select {
  constexpr C operator()(C condition, C x, C y) const { return condition != C(0) ? x : y; }
};

template <class C>
struct AddScaled {
  C alpha;
  constexpr C operator()(C x, C y) const { return arithmetic::Add(y, arithmetic::Mul(alpha, x)); }
};

void RunWhere(const WhereSpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    MapWithCondition<3, C>(execution.inputs, execution.outputs[0], StreamOf(execution.device),
                           Select<C>{});
  });
}

void RunAxpy(const AxpySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    Map<2, C>(execution.inputs, execution.outputs[0], StreamOf(execution.device),
              AddScaled<C>{Convert<C>(execution.scalars.v[0])});
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<AxpySpec, RunAxpy>();
  RegisterKernels<WhereSpec, RunWhere>();
}

}  // namespace singa::cuda
