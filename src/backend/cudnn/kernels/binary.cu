// c = f(a, b) and its two derivatives; the functions are in model/formula/binary.h.

#include "model/formula/binary.h"

#include "backend/cudnn/kernels/map.h"
#include "backend/cudnn/kernels/register.h"
#include "model/formula/switch_operation.h"
#include "model/operation/elementwise_spec.h"

namespace singa::cuda {
namespace {

template <BinaryOp kOp, class C>
struct Function {
  constexpr C operator()(C a, C b) const { return formula::Binary(kOp, a, b); }
};

template <BinaryOp kOp, bool kFirst, class C>
struct Gradient {
  constexpr C operator()(C dy, C a, C b) const {
    return formula::BinaryGradient(kOp, kFirst, dy, a, b);
  }
};

void Run(const BinarySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    formula::SwitchOperation(spec.kind, [&]<BinaryOp kOp>() {
      Map<2, C>(execution.inputs, execution.outputs[0], StreamOf(execution.device),
                Function<kOp, C>{});
    });
  });
}

template <BinaryOp kOp, class C>
void MapGradient(bool first, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  if (first) {
    Map<3, C>(execution.inputs, execution.outputs[0], stream, Gradient<kOp, true, C>{});
  } else {
    Map<3, C>(execution.inputs, execution.outputs[0], stream, Gradient<kOp, false, C>{});
  }
}

void RunBackward(const BinaryBackwardSpec& spec, const Execution& execution) {
  if (!formula::HasBinaryGradient(spec.kind))
    throw std::logic_error("a binary derivative without a kernel");
  formula::SwitchOperation(spec.kind, [&]<BinaryOp kOp>() {
    if constexpr (formula::HasBinaryGradient(kOp)) {
      spec.dtype == kFloat64 ? MapGradient<kOp, double>(spec.argument == 0, execution)
                             : MapGradient<kOp, float>(spec.argument == 0, execution);
    }
  });
}

}  // namespace

void RegisterBinary() {
  RegisterKernels<BinarySpec, Run>();
  RegisterKernels<BinaryBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
