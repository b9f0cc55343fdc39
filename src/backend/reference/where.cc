// Selection by a condition, and y += alpha·x.

#include "backend/reference/map.h"
#include "backend/reference/register.h"
#include "core/dtype_switch.h"
#include "model/formula/arithmetic.h"
#include "model/operation/elementwise_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {

namespace {

void RunWhere(const WhereSpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    MapWithCondition<C>(execution.inputs, execution.outputs[0], kParallelGrain,
                        [](const C* const* in, C* out, int64_t n) {
                          Loop(in[0], in[1], in[2], out, n,
                               [](C condition, C x, C y) { return condition != C(0) ? x : y; });
                        });
  });
}

void RunAxpy(const AxpySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    const C alpha = Convert<C>(execution.scalars.v[0]);
    MapArithmetic<C>(execution.inputs, execution.outputs[0],
                     [alpha](C x, C y) { return arithmetic::Add(y, arithmetic::Mul(alpha, x)); });
  });
}

}  // namespace

void RegisterWhere() {
  RegisterReference<AxpySpec, RunAxpy>();
  RegisterReference<WhereSpec, RunWhere>();
}

}  // namespace singa::reference
