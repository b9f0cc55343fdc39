// y = f(x) and dx = dy · f'(x). The functions are in model/formula/unary.h.

#include "model/formula/unary.h"

#include "backend/cuda/kernels/common/map.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/formula/switch_operation.h"
#include "model/operation/elementwise/spec.h"

namespace singa::cuda {
namespace {

/// One function, for a kernel of its own.
template <UnaryOp kOp>
struct Function {
  float a, b;
  constexpr float operator()(float x) const { return formula::Unary(kOp, x, a, b); }
};
template <UnaryOp kOp>
struct Gradient {
  float a, b;
  constexpr float operator()(float dy, float xy) const {
    return formula::UnaryGradient(kOp, dy, xy, a, b);
  }
};

/// Any function of the family.
template <class C>
struct AnyFunction {
  UnaryOp op;
  C a, b;
  SINGA_CALLED __device__ C operator()(C x) const { return formula::Unary(op, x, a, b); }
};
template <class C>
struct AnyGradient {
  UnaryOp op;
  C a, b;
  SINGA_CALLED __device__ C operator()(C dy, C xy) const {
    return formula::UnaryGradient(op, dy, xy, a, b);
  }
};

void Run(const UnarySpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& y = execution.outputs[0];
  SwitchCompute(spec.dtype, [&]<class C>() {
    const C a = Convert<C>(execution.scalars.v[0]);
    const C b = Convert<C>(execution.scalars.v[1]);
    bool done = false;
    if constexpr (std::is_same_v<C, float>)
      formula::SwitchOperation(spec.kind, [&]<UnaryOp kOp>() {
        done = TryMapDense<1>(execution.inputs, y, stream, Function<kOp>{a, b});
      });
    if (!done) MapStrided<1, C>(execution.inputs, y, stream, AnyFunction<C>{spec.kind, a, b});
  });
}

template <class C>
void RunGradient(const UnaryBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& dx = execution.outputs[0];
  const C a = static_cast<C>(execution.scalars.v[0]);
  const C b =
      spec.kind == UnaryOp::kScalarPow ? std::log(a) : static_cast<C>(execution.scalars.v[1]);
  bool done = false;
  if constexpr (std::is_same_v<C, float>)
    formula::SwitchOperation(spec.kind, [&]<UnaryOp kOp>() {
      if constexpr (formula::HasUnaryGradient(kOp))
        done = TryMapDense<2>(execution.inputs, dx, stream, Gradient<kOp>{a, b});
    });
  if (!done) MapStrided<2, C>(execution.inputs, dx, stream, AnyGradient<C>{spec.kind, a, b});
}

void RunBackward(const UnaryBackwardSpec& spec, const Execution& execution) {
  if (!formula::HasUnaryGradient(spec.kind))
    throw std::logic_error("a unary derivative without a kernel");
  spec.dtype == kFloat64 ? RunGradient<double>(spec, execution)
                         : RunGradient<float>(spec, execution);
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<UnarySpec, Run>();
  RegisterKernels<UnaryBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
