// c = f(a, b) and its two derivatives. The functions are in model/formula/binary.h.

#include "model/formula/binary.h"

#include "backend/cuda/kernels/common/map.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/formula/switch_operation.h"
#include "model/operation/elementwise/spec.h"

namespace singa::cuda {
namespace {

/// True for operations that are common between an image or matrix and one number per channel or
/// row. Their broadcasts also have separate kernels.
constexpr bool IsBroadcastOften(BinaryOp op) {
  return op == BinaryOp::kAdd || op == BinaryOp::kSub || op == BinaryOp::kMul ||
         op == BinaryOp::kDiv;
}

/// One function, for a kernel of its own.
template <BinaryOp kOp>
struct Function {
  constexpr float operator()(float a, float b) const { return formula::Binary(kOp, a, b); }
};
template <BinaryOp kOp>
struct Gradient {
  bool first;
  constexpr float operator()(float dy, float a, float b) const {
    return formula::BinaryGradient(kOp, first, dy, a, b);
  }
};

/// Any function of the family.
template <class C>
struct AnyFunction {
  BinaryOp op;
  SINGA_CALLED __device__ C operator()(C a, C b) const { return formula::Binary(op, a, b); }
};
template <class C>
struct AnyGradient {
  BinaryOp op;
  bool first;
  SINGA_CALLED __device__ C operator()(C dy, C a, C b) const {
    return formula::BinaryGradient(op, first, dy, a, b);
  }
};

void Run(const BinarySpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& c = execution.outputs[0];
  SwitchCompute(spec.dtype, [&]<class C>() {
    bool done = false;
    if constexpr (std::is_same_v<C, float>)
      formula::SwitchOperation(spec.kind, [&]<BinaryOp kOp>() {
        done = TryMapDense<2>(execution.inputs, c, stream, Function<kOp>{});
        if constexpr (IsBroadcastOften(kOp))
          done = done || TryMapRuns<2>(execution.inputs, c, stream, Function<kOp>{});
      });
    if (!done) MapStrided<2, C>(execution.inputs, c, stream, AnyFunction<C>{spec.kind});
  });
}

template <class C>
void RunGradient(const BinaryBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& dx = execution.outputs[0];
  const bool first = spec.argument == 0;
  bool done = false;
  if constexpr (std::is_same_v<C, float>)
    formula::SwitchOperation(spec.kind, [&]<BinaryOp kOp>() {
      if constexpr (formula::HasBinaryGradient(kOp))
        done = TryMapDense<3>(execution.inputs, dx, stream, Gradient<kOp>{first});
      if constexpr (formula::HasBinaryGradient(kOp) && IsBroadcastOften(kOp))
        done = done || TryMapRuns<3>(execution.inputs, dx, stream, Gradient<kOp>{first});
    });
  if (!done) MapStrided<3, C>(execution.inputs, dx, stream, AnyGradient<C>{spec.kind, first});
}

void RunBackward(const BinaryBackwardSpec& spec, const Execution& execution) {
  if (!formula::HasBinaryGradient(spec.kind))
    throw std::logic_error("a binary derivative without a kernel");
  spec.dtype == kFloat64 ? RunGradient<double>(spec, execution)
                         : RunGradient<float>(spec, execution);
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<BinarySpec, Run>();
  RegisterKernels<BinaryBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
