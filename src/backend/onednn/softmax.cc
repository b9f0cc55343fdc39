// Softmax along contiguous rows: with an inner axis, oneDNN has only reference loops. Log-softmax
// is left out: its logarithm has only 19 correct bits, and the exponential in its backward pass
// loses NaN and infinity.

#include <algorithm>
#include <cstdint>

#include "backend/onednn/engine.h"
#include "core/device/parallel.h"
#include "model/dispatch/kernel.h"
#include "model/operation/softmax/spec.h"

namespace singa::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using Forward = dnnl::softmax_forward;
using Backward = dnnl::softmax_backward;

template <class Spec>
memory::desc Rows(const Spec& spec) {
  return PlainDesc({spec.outer, spec.axis}, spec.dtype);
}

Forward::primitive_desc ForwardDesc(const memory::desc& rows) {
  Forward::primitive_desc pd(Engine(), prop_kind::forward_training, algorithm::softmax_accurate,
                             rows, rows, 1, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Forward::primitive_desc();
}

Backward::primitive_desc BackwardDesc(const memory::desc& rows) {
  const Forward::primitive_desc hint = ForwardDesc(rows);
  if (!hint) return {};
  Backward::primitive_desc pd(Engine(), algorithm::softmax_accurate, rows, rows, rows, 1, hint,
                              ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Backward::primitive_desc();
}

/// An element costs about four additions.
template <class Spec>
int ThreadsFor(const Spec& spec) {
  return ThreadsWorth(4 * spec.outer * spec.axis, kElementsWorthThreads);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (spec.log) return "oneDNN's log-softmax is not accurate enough";
  if (spec.dtype != kFloat32) return "oneDNN rounds other types twice";
  if (spec.inner != 1) return "the axis is not the innermost one";
  if (spec.outer * spec.axis == 0) return "there is nothing to compute";
  return "";
}

SINGA_MULTI_ISA float Sum(const float* x, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

/// oneDNN writes NaN only where x has one; softmax makes the whole row NaN.
void SpreadNan(int64_t rows, int64_t length, float* y) {
  ParallelFor(rows, kParallelGrain / length + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float sum = Sum(y + r * length, length);
      if (sum != sum) std::fill_n(y + r * length, length, sum);
    }
  });
}

class ForwardPlan final : public PrimitivePlan {
 public:
  ForwardPlan(const SoftmaxSpec& spec, const Forward::primitive_desc& pd)
      : PrimitivePlan(spec.op(), pd, Forward(pd), {{DNNL_ARG_SRC, pd.src_desc(), nullptr}},
                      {{DNNL_ARG_DST, pd.dst_desc(), nullptr}}),
        spec_(spec) {}
  void Run(const Execution& execution) const override {
    PrimitivePlan::Run(execution);
    SpreadNan(spec_.outer, spec_.axis, execution.out<float>(0));
  }

 private:
  SoftmaxSpec spec_;
};

PlanOrReason MakeForward(const SoftmaxSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanOrReason {
    const auto pd = ForwardDesc(Rows(spec));
    if (!pd) return OnlyReference();
    return std::make_shared<ForwardPlan>(spec, pd);
  });
}

PlanOrReason MakeBackward(const SoftmaxBackwardSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanOrReason {
    const auto pd = BackwardDesc(Rows(spec));
    if (!pd) return OnlyReference();
    std::vector<Argument> inputs = {{DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), nullptr},
                                    {DNNL_ARG_DST, pd.dst_desc(), nullptr}};
    std::vector<Argument> outputs = {{DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), nullptr}};
    return std::make_shared<PrimitivePlan>(spec.op(), pd, Backward(pd), std::move(inputs),
                                           std::move(outputs));
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<SoftmaxSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = MakeForward});
  Register<SoftmaxBackwardSpec>(DeviceKind::kCpu, "onednn",
                                {.refuses = Refuses, .make = MakeBackward});
}

}  // namespace singa::onednn
