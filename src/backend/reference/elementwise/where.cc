// Selection by a condition, and y += alpha·x.

#include "backend/reference/elementwise/map.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/stored_size.h"
#include "model/dispatch/kernel.h"
#include "model/formula/arithmetic.h"
#include "model/operation/elementwise/spec.h"
#include "singa/core/half.h"

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

/// Converts in registers, without float32 buffers, so that sums of bfloat16 gradients are bound by
/// memory only.
SINGA_MULTI_ISA void AddDense(float alpha, const BFloat16* x, const BFloat16* y, BFloat16* out,
                              int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(x[i]), sum = static_cast<float>(y[i]);
    out[i].bits = BFloat16(arithmetic::Add(sum, arithmetic::Mul(alpha, value))).bits;
  }
}

bool IsDenseBFloat16(const Tensor& t) {
  return t.data_type() == kBFloat16 && (t.layout() || t.is_contiguous());
}

void RunAxpy(const AxpySpec& spec, const Execution& execution) {
  const Tensor &x = execution.inputs[0], &y = execution.inputs[1], &out = execution.outputs[0];
  if (IsDenseBFloat16(x) && IsDenseBFloat16(y) && IsDenseBFloat16(out)) {
    const auto alpha = static_cast<float>(execution.scalars.v[0]);
    ParallelFor(StoredSize(out), kParallelGrain, [&](int64_t begin, int64_t end) {
      AddDense(alpha, execution.in<BFloat16>(0) + begin, execution.in<BFloat16>(1) + begin,
               execution.out<BFloat16>(0) + begin, end - begin);
    });
    return;
  }
  SwitchCompute(spec.dtype, [&]<class C>() {
    const C alpha = Convert<C>(execution.scalars.v[0]);
    MapArithmetic<C>(execution.inputs, execution.outputs[0],
                     [alpha](C x, C y) { return arithmetic::Add(y, arithmetic::Mul(alpha, x)); });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<AxpySpec, RunAxpy>();
  RegisterReference<WhereSpec, RunWhere>();
}

}  // namespace singa::reference
