// c = f(a, b) and its two derivatives: one line each.

#include "backend/reference/arithmetic.h"
#include "backend/reference/dtype_switch.h"
#include "backend/reference/map.h"
#include "backend/reference/register.h"
#include "model/operation/elementwise_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {

namespace {

using namespace arithmetic;  // NOLINT(google-build-using-namespace): the table reads as formulas

template <class C>
void RunForward(BinaryOp op, std::span<const Tensor> in, const Tensor& out) {
  constexpr C k0 = 0;
  const auto simple = [&](auto f) { MapArithmetic<C>(in, out, f); };
  const auto math = [&](auto f) { MapMath<C>(in, out, f); };
  const auto truth = [&](auto f) {
    MapArithmetic<C>(in, out, [f](C a, C b) { return f(a, b) ? C(1) : C(0); });
  };
  // clang-format off
  switch (op) {
    case BinaryOp::kAdd: return simple([](C a, C b) { return Add(a, b); });
    case BinaryOp::kSub: return simple([](C a, C b) { return Sub(a, b); });
    case BinaryOp::kMul: return simple([](C a, C b) { return Mul(a, b); });
    case BinaryOp::kDiv: return simple([](C a, C b) { return Div(a, b); });
    case BinaryOp::kPow: return math([](C a, C b) { return Pow(a, b); });
    case BinaryOp::kMin: return simple([](C a, C b) { return Min(a, b); });
    case BinaryOp::kMax: return simple([](C a, C b) { return Max(a, b); });
    case BinaryOp::kMod: return math([](C a, C b) { return Mod(a, b); });
    case BinaryOp::kLess: return truth([](C a, C b) { return a < b; });
    case BinaryOp::kLessEqual: return truth([](C a, C b) { return a <= b; });
    case BinaryOp::kGreater: return truth([](C a, C b) { return a > b; });
    case BinaryOp::kGreaterEqual: return truth([](C a, C b) { return a >= b; });
    case BinaryOp::kEqual: return truth([](C a, C b) { return a == b; });
    case BinaryOp::kNotEqual: return truth([](C a, C b) { return a != b; });
    case BinaryOp::kAnd: return truth([](C a, C b) { return (a != k0) & (b != k0); });
    case BinaryOp::kOr: return truth([](C a, C b) { return (a != k0) | (b != k0); });
    case BinaryOp::kXor: return truth([](C a, C b) { return (a != k0) != (b != k0); });
    case BinaryOp::kPRelu: return simple([](C a, C b) { return a >= k0 ? a : Mul(a, b); });
    case BinaryOp::kCount: break;
  }
  // clang-format on
  throw std::logic_error("a binary function without a kernel");
}

// Gradient of a where `first`, else of b.
template <class C>
void RunBackward(BinaryOp op, bool first, std::span<const Tensor> in, const Tensor& out) {
  constexpr C k0 = 0, kHalf = 0.5;
  // Only the lambda of the argument that is asked for runs.
  const auto simple = [&](auto da, auto db) {
    first ? MapArithmetic<C>(in, out, da) : MapArithmetic<C>(in, out, db);
  };
  const auto math = [&](auto da, auto db) {
    first ? MapMath<C>(in, out, da) : MapMath<C>(in, out, db);
  };
  // clang-format off
  switch (op) {
    case BinaryOp::kMul:
      return simple([](C dy, C, C b) { return dy * b; },
                    [](C dy, C a, C) { return dy * a; });
    case BinaryOp::kDiv:
      return simple([](C dy, C, C b) { return dy / b; },
                    [](C dy, C a, C b) { return -dy * ((a / b) / b); });
    case BinaryOp::kPow:
      // 0·a^-1 and 0·log 0 are zero here; the second is given c = a^b for b.
      return math([](C dy, C a, C b) { return b == k0 ? k0 : dy * (b * std::pow(a, b - 1)); },
                  [](C dy, C a, C c) { return a == k0 && c <= C(1) ? k0 : dy * (c * std::log(a)); });
    case BinaryOp::kMin:
      return simple([](C dy, C a, C b) { return a == b ? dy * kHalf : a > b ? k0 : dy; },
                    [](C dy, C a, C b) { return a == b ? dy * kHalf : b > a ? k0 : dy; });
    case BinaryOp::kMax:
      return simple([](C dy, C a, C b) { return a == b ? dy * kHalf : a < b ? k0 : dy; },
                    [](C dy, C a, C b) { return a == b ? dy * kHalf : b < a ? k0 : dy; });
    case BinaryOp::kMod:
      return simple([](C dy, C, C) { return dy; },
                    [](C dy, C a, C b) { return -dy * std::floor(a / b); });
    case BinaryOp::kPRelu:
      return simple([](C dy, C a, C b) { return a > k0 ? dy : dy * b; },
                    [](C dy, C a, C) { return a > k0 ? k0 : dy * a; });
    default: break;
  }
  // clang-format on
  throw std::logic_error("a binary derivative without a kernel");
}

void Run(const BinarySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    RunForward<C>(spec.kind, execution.inputs, execution.outputs[0]);
  });
}

void RunGradient(const BinaryBackwardSpec& spec, const Execution& execution) {
  const auto run = [&]<class C>(C) {
    RunBackward<C>(spec.kind, spec.argument == 0, execution.inputs, execution.outputs[0]);
  };
  spec.dtype == kFloat64 ? run(double{}) : run(float{});
}

}  // namespace

void RegisterBinary() {
  RegisterReference<BinarySpec, Run>();
  RegisterReference<BinaryBackwardSpec, RunGradient>();
}

}  // namespace singa::reference
