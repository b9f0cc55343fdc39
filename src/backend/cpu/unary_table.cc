// Functions of bfloat16 that take longer to compute than to look up, such as GELU: the table of all
// 65,536 arguments is made with the plan. Results have the bits of `reference`, which computes the
// same formulas in float32 and rounds once. Arguments of about one size share a few KiB of the
// table, which stay in the first-level cache.

#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/strided.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/vector_unary.h"
#include "model/operation/elementwise/spec.h"

namespace singa::cpu {
namespace {

constexpr int64_t kArguments = 1 << 16;

template <class T, class F>
SINGA_MULTI_ISA void Fill(T* table, F f) {
  for (int64_t i = 0; i < kArguments; ++i)
    table[i] = Convert<T>(f(std::bit_cast<float>(static_cast<uint32_t>(i) << 16)));
}

// `ivdep` is valid: an input may be the output itself, but never overlaps it otherwise.

SINGA_MULTI_ISA void LookUp(const BFloat16* table, const BFloat16* x, int64_t x_step, BFloat16* y,
                            int64_t y_step, int64_t n) {
  if (x_step == 1 && y_step == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = table[x[i].bits];
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i * y_step] = table[x[i * x_step].bits];
}

/// dx = dy · slope(x)
SINGA_MULTI_ISA void Multiply(const float* slopes, const BFloat16* dy, int64_t dy_step,
                              const BFloat16* x, int64_t x_step, BFloat16* dx, int64_t dx_step,
                              int64_t n) {
  if (dy_step == 1 && x_step == 1 && dx_step == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      dx[i] = Convert<BFloat16>(Convert<float>(dy[i]) * slopes[x[i].bits]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    dx[i * dx_step] =
        Convert<BFloat16>(Convert<float>(dy[i * dy_step]) * slopes[x[i * x_step].bits]);
}

/// Calls run(offsets, n) in parallel for runs of elements; array 0 is the result, the others are
/// the inputs. If one has an opaque layout, all have it.
template <int K, class Run>
void ForEachRun(const Execution& execution, const Run& run) {
  const auto space = SpaceOf<K>(execution.inputs, execution.outputs[0]);
  std::array<int64_t, K> steps;
  for (int k = 0; k < K; ++k) steps[static_cast<size_t>(k)] = space.inner_stride(k);
  ParallelFor(space.size(), kParallelGrain, [&](int64_t begin, int64_t end) {
    space.Walk(begin, end, [&](const typename StridedSpace<K>::Offsets& offsets, int64_t n) {
      run(offsets, steps, n);
    });
  });
}

/// T is the type of the table's elements.
template <class Spec, class T>
class TablePlan : public Plan {
 public:
  TablePlan() : Plan("cpu"), table_(static_cast<size_t>(kArguments)) {}
  std::string Describe() const override { return "cpu table"; }
  int inplace_input(size_t i) const override { return i == 0 ? Spec::kInPlaceInput : -1; }
  size_t bytes() const override { return sizeof(*this) + table_.size() * sizeof(T); }

 protected:
  std::vector<T> table_;
};

class ForwardPlan final : public TablePlan<UnarySpec, BFloat16> {
 public:
  explicit ForwardPlan(const UnarySpec& spec) {
    formula::SwitchOperation(spec.kind, [&]<UnaryOp kOp>() {
      if constexpr (formula::HasVectorForm(kOp))
        Fill(table_.data(), [](float x) SINGA_INLINE_LAMBDA {
          if constexpr (!formula::IsForAll(kOp))
            if (std::fabs(x) > formula::LargestOf(kOp)) return formula::Unary(kOp, x, 0.0f, 0.0f);
          return formula::VectorUnary<kOp>(x);
        });
    });
  }
  void Run(const Execution& execution) const override {
    const auto* x = execution.in<BFloat16>(0);
    auto* y = execution.out<BFloat16>(0);
    ForEachRun<2>(execution, [&](const auto& at, const auto& step, int64_t n) {
      LookUp(table_.data(), x + at[1], step[1], y + at[0], step[0], n);
    });
  }
};

class BackwardPlan final : public TablePlan<UnaryBackwardSpec, float> {
 public:
  explicit BackwardPlan(const UnaryBackwardSpec& spec) {
    formula::SwitchOperation(spec.kind, [&]<UnaryOp kOp>() {
      if constexpr (formula::HasVectorSlope(kOp))
        Fill(table_.data(), [](float x) SINGA_INLINE_LAMBDA {
          if constexpr (!formula::IsForAll(kOp))
            if (std::fabs(x) > formula::LargestOf(kOp))
              return formula::UnaryGradient(kOp, 1.0f, x, 0.0f, 0.0f);
          return formula::VectorGradient<kOp>(1.0f, x);
        });
    });
  }
  void Run(const Execution& execution) const override {
    const auto *dy = execution.in<BFloat16>(0), *x = execution.in<BFloat16>(1);
    auto* dx = execution.out<BFloat16>(0);
    ForEachRun<3>(execution, [&](const auto& at, const auto& step, int64_t n) {
      Multiply(table_.data(), dy + at[1], step[1], x + at[2], step[2], dx + at[0], step[0], n);
    });
  }
};

template <class Spec, bool (*has_form)(UnaryOp)>
std::string Refuses(const Spec& spec) {
  if (spec.dtype != kBFloat16) return "tables are for bfloat16";
  if (!has_form(spec.kind)) return "the function is as fast as a table, or calls the C library";
  return "";
}

template <class P, class Spec>
PlanOrReason Make(const Spec& spec) {
  return std::make_shared<P>(spec);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<UnarySpec>(DeviceKind::kCpu, "cpu",
                      {.refuses = Refuses<UnarySpec, formula::HasVectorForm>,
                       .make = Make<ForwardPlan, UnarySpec>});
  Register<UnaryBackwardSpec>(DeviceKind::kCpu, "cpu",
                              {.refuses = Refuses<UnaryBackwardSpec, formula::HasVectorSlope>,
                               .make = Make<BackwardPlan, UnaryBackwardSpec>});
}

}  // namespace singa::cpu
