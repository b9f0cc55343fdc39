// y = f(x) and dx = dy · f'(x); the functions are in model/formula/unary.h.

#include "model/formula/unary.h"

#include "backend/cudnn/kernels/map.h"
#include "backend/cudnn/kernels/register.h"
#include "model/formula/switch_operation.h"
#include "model/operation/elementwise_spec.h"

namespace singa::cuda {
namespace {

template <UnaryOp kOp, class C>
struct Function {
  C a, b;
  constexpr C operator()(C x) const { return formula::Unary(kOp, x, a, b); }
};

template <UnaryOp kOp, class C>
struct Gradient {
  C a, b;
  constexpr C operator()(C dy, C xy) const { return formula::UnaryGradient(kOp, dy, xy, a, b); }
};

void Run(const UnarySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    const C a = Convert<C>(execution.scalars.v[0]);
    const C b = Convert<C>(execution.scalars.v[1]);
    formula::SwitchOperation(spec.kind, [&]<UnaryOp kOp>() {
      constexpr bool kDefined = std::is_floating_point_v<C> || formula::HasIntegerFunction(kOp);
      using F = Function<kDefined ? kOp : UnaryOp::kFloor, C>;
      Map<1, C>(execution.inputs, execution.outputs[0], StreamOf(execution.device), F{a, b});
    });
  });
}

template <class C>
void RunGradient(const UnaryBackwardSpec& spec, const Execution& execution) {
  const C a = static_cast<C>(execution.scalars.v[0]);
  const C b =
      spec.kind == UnaryOp::kScalarPow ? std::log(a) : static_cast<C>(execution.scalars.v[1]);
  formula::SwitchOperation(spec.kind, [&]<UnaryOp kOp>() {
    if constexpr (formula::HasUnaryGradient(kOp))
      Map<2, C>(execution.inputs, execution.outputs[0], StreamOf(execution.device),
                Gradient<kOp, C>{a, b});
  });
}

void RunBackward(const UnaryBackwardSpec& spec, const Execution& execution) {
  if (!formula::HasUnaryGradient(spec.kind))
    throw std::logic_error("a unary derivative without a kernel");
  spec.dtype == kFloat64 ? RunGradient<double>(spec, execution)
                         : RunGradient<float>(spec, execution);
}

}  // namespace

void RegisterUnary() {
  RegisterKernels<UnarySpec, Run>();
  RegisterKernels<UnaryBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
