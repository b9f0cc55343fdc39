// Softmax along dense rows, and the gradient of log-softmax: with an inner axis oneDNN has only
// reference loops, and its logarithm is right to 19 bits only.

#include <algorithm>
#include <cstdint>

#include "backend/onednn/engine.h"
#include "backend/onednn/register.h"
#include "core/parallel.h"
#include "model/operation/kernel.h"
#include "model/operation/softmax_spec.h"

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

Forward::primitive_desc ForwardDesc(const memory::desc& rows, bool log) {
  Forward::primitive_desc pd(Engine(), prop_kind::forward_training,
                             log ? algorithm::softmax_log : algorithm::softmax_accurate, rows, rows,
                             1, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Forward::primitive_desc();
}

Backward::primitive_desc BackwardDesc(const memory::desc& rows, bool log) {
  const Forward::primitive_desc hint = ForwardDesc(rows, log);
  if (!hint) return {};
  Backward::primitive_desc pd(Engine(), log ? algorithm::softmax_log : algorithm::softmax_accurate,
                              rows, rows, rows, 1, hint, ScratchpadAttr(), true);
  return SkipReference(&pd) ? pd : Backward::primitive_desc();
}

/// Each element costs as much as some additions.
template <class Spec>
int ThreadsFor(const Spec& spec) {
  return ThreadsWorth(4 * spec.outer * spec.axis, kElementsWorthThreads);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (spec.dtype != kFloat32) return "oneDNN rounds other types twice";
  if (spec.inner != 1) return "the axis is not the innermost one";
  if (spec.outer * spec.axis == 0) return "there is nothing to compute";
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> std::string {
    return BackwardDesc(Rows(spec), spec.log) ? "" : "oneDNN has only its reference implementation";
  });
}

SINGA_MULTI_ISA float Sum(const float* x, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

/// oneDNN leaves a NaN where it was; a row that has one is NaN everywhere.
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

std::string RefusesForward(const SoftmaxSpec& spec) {
  return spec.log ? "oneDNN's logarithm is not accurate enough" : Refuses(spec);
}

PlanPtr MakeForward(const SoftmaxSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanPtr {
    return std::make_shared<ForwardPlan>(spec, ForwardDesc(Rows(spec), spec.log));
  });
}

SINGA_MULTI_ISA void KeepNan(const float* y, int64_t n, float* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] != y[i] ? y[i] : dx[i];
}

/// oneDNN's exponential makes infinity of a NaN.
class LogBackwardPlan final : public PrimitivePlan {
 public:
  using PrimitivePlan::PrimitivePlan;
  void Run(const Execution& execution) const override {
    PrimitivePlan::Run(execution);
    const auto* y = execution.in<float>(1);
    auto* dx = execution.out<float>(0);
    ParallelFor(execution.outputs[0].size(), kParallelGrain,
                [&](int64_t begin, int64_t end) { KeepNan(y + begin, end - begin, dx + begin); });
  }
};

PlanPtr MakeBackward(const SoftmaxBackwardSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanPtr {
    const auto pd = BackwardDesc(Rows(spec), spec.log);
    std::vector<Argument> inputs = {{DNNL_ARG_DIFF_DST, pd.diff_dst_desc(), nullptr},
                                    {DNNL_ARG_DST, pd.dst_desc(), nullptr}};
    std::vector<Argument> outputs = {{DNNL_ARG_DIFF_SRC, pd.diff_src_desc(), nullptr}};
    if (spec.log)
      return std::make_shared<LogBackwardPlan>(spec.op(), pd, Backward(pd), std::move(inputs),
                                               std::move(outputs));
    return std::make_shared<PrimitivePlan>(spec.op(), pd, Backward(pd), std::move(inputs),
                                           std::move(outputs));
  });
}

}  // namespace

void RegisterSoftmax() {
  Register<SoftmaxSpec>("onednn", RefusesForward, MakeForward);
  Register<SoftmaxBackwardSpec>("onednn", Refuses<SoftmaxBackwardSpec>, MakeBackward);
}

}  // namespace singa::onednn
