// y = f(x): one line per function.

#include <numbers>

#include "backend/reference/arithmetic.h"
#include "backend/reference/dtype_switch.h"
#include "backend/reference/map.h"
#include "backend/reference/register.h"
#include "model/operation/elementwise_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {

namespace {

using namespace arithmetic;  // NOLINT(google-build-using-namespace): the table reads as formulas

// Functions of any type. False when `op` is none of them.
template <class C>
bool RunArithmetic(UnaryOp op, C a, C b, std::span<const Tensor> in, const Tensor& out) {
  const auto map = [&](auto f) { return MapArithmetic<C>(in, out, f), true; };
  // clang-format off
  switch (op) {
    case UnaryOp::kAbs: return map([](C x) { return Abs(x); });
    case UnaryOp::kSign: return map([](C x) { return Sign(x); });
    case UnaryOp::kNegative: return map([](C x) { return Negate(x); });
    case UnaryOp::kSquare: return map([](C x) { return Mul(x, x); });
    case UnaryOp::kRelu: return map([](C x) { return x <= C(0) ? C(0) : x; });
    case UnaryOp::kClip: return map([a, b](C x) { x = x < a ? a : x; return x > b ? b : x; });
    case UnaryOp::kAddScalar: return map([a](C x) { return Add(x, a); });
    case UnaryOp::kMulScalar: return map([a](C x) { return Mul(x, a); });
    case UnaryOp::kScalarSub: return map([a](C x) { return Sub(a, x); });
    case UnaryOp::kScalarDiv: return map([a](C x) { return Div(a, x); });
    case UnaryOp::kLogicalNot: return map([](C x) { return x == C(0) ? C(1) : C(0); });
    default: return false;
  }
  // clang-format on
}

// Powers of integers, and the functions that leave integers as they are.
template <class C>
void RunInteger(UnaryOp op, C a, std::span<const Tensor> in, const Tensor& out) {
  // clang-format off
  switch (op) {
    case UnaryOp::kPowScalar: return MapMath<C>(in, out, [a](C x) { return Pow(x, a); });
    case UnaryOp::kScalarPow: return MapMath<C>(in, out, [a](C x) { return Pow(a, x); });
    default: return MapMath<C>(in, out, [](C x) { return x; });
  }
  // clang-format on
}

// Functions of floats.
template <class C>
void RunFloat(UnaryOp op, C a, C b, std::span<const Tensor> in, const Tensor& out) {
  constexpr C k0 = 0, k1 = 1, kHalf = 0.5;
  constexpr C kRootHalf = std::numbers::sqrt2_v<C> / 2;
  const auto simple = [&](auto f) { MapArithmetic<C>(in, out, f); };
  const auto math = [&](auto f) { MapMath<C>(in, out, f); };
  // clang-format off
  switch (op) {
    case UnaryOp::kReciprocal: return simple([](C x) { return k1 / x; });
    case UnaryOp::kSqrt: return simple([](C x) { return std::sqrt(x); });
    case UnaryOp::kCeil: return simple([](C x) { return std::ceil(x); });
    case UnaryOp::kFloor: return simple([](C x) { return std::floor(x); });
    case UnaryOp::kRound: return math([](C x) { return std::round(x); });
    case UnaryOp::kRoundE: return simple([](C x) { return std::nearbyint(x); });
    case UnaryOp::kExp: return math([](C x) { return std::exp(x); });
    case UnaryOp::kLog: return math([](C x) { return std::log(x); });
    case UnaryOp::kErf: return math([](C x) { return std::erf(x); });
    case UnaryOp::kSin: return math([](C x) { return std::sin(x); });
    case UnaryOp::kCos: return math([](C x) { return std::cos(x); });
    case UnaryOp::kTan: return math([](C x) { return std::tan(x); });
    case UnaryOp::kAsin: return math([](C x) { return std::asin(x); });
    case UnaryOp::kAcos: return math([](C x) { return std::acos(x); });
    case UnaryOp::kAtan: return math([](C x) { return std::atan(x); });
    case UnaryOp::kSinh: return math([](C x) { return std::sinh(x); });
    case UnaryOp::kCosh: return math([](C x) { return std::cosh(x); });
    case UnaryOp::kTanh: return math([](C x) { return std::tanh(x); });
    case UnaryOp::kAsinh: return math([](C x) { return std::asinh(x); });
    case UnaryOp::kAcosh: return math([](C x) { return std::acosh(x); });
    case UnaryOp::kAtanh: return math([](C x) { return std::atanh(x); });
    case UnaryOp::kSigmoid: return math([](C x) { return k1 / (k1 + std::exp(-x)); });
    case UnaryOp::kSilu: return math([](C x) { return x / (k1 + std::exp(-x)); });
    // erfc keeps the digits that 1 + erf(x) loses below zero.
    case UnaryOp::kGelu: return math([](C x) { return kHalf * x * std::erfc(-x * kRootHalf); });
    // log(1 + exp(x)) without overflow.
    case UnaryOp::kSoftPlus:
      return math([](C x) { return Max(x, k0) + std::log1p(std::exp(-std::fabs(x))); });
    case UnaryOp::kSoftSign: return simple([](C x) { return x / (k1 + std::fabs(x)); });
    case UnaryOp::kElu: return math([a](C x) { return x >= k0 ? x : a * std::expm1(x); });
    case UnaryOp::kSelu: return math([a, b](C x) { return b * (x >= k0 ? x : a * std::expm1(x)); });
    case UnaryOp::kLeakyRelu: return simple([a](C x) { return x >= k0 ? x : a * x; });
    case UnaryOp::kHardSigmoid:
      return simple([a, b](C x) { x = a * x + b; x = x < k0 ? k0 : x; return x > k1 ? k1 : x; });
    case UnaryOp::kPowScalar:
      if (a == 2) return simple([](C x) { return x * x; });
      return math([a](C x) { return std::pow(x, a); });
    case UnaryOp::kScalarPow: return math([a](C x) { return std::pow(a, x); });
    default: throw std::logic_error("a unary function without a kernel");
  }
  // clang-format on
}

void Run(const UnarySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    const C a = Convert<C>(execution.scalars.v[0]);
    const C b = Convert<C>(execution.scalars.v[1]);
    const auto in = execution.inputs;
    const Tensor& out = execution.outputs[0];
    if (RunArithmetic<C>(spec.kind, a, b, in, out)) return;
    if constexpr (std::is_floating_point_v<C>) {
      RunFloat<C>(spec.kind, a, b, in, out);
    } else {
      RunInteger<C>(spec.kind, a, in, out);
    }
  });
}

}  // namespace

void RegisterUnary() { RegisterReference<UnarySpec, Run>(); }

}  // namespace singa::reference
