// dx = dy · f'(x): one line per function. Kinks follow PyTorch.

#include <numbers>

#include "backend/reference/arithmetic.h"
#include "backend/reference/dtype_switch.h"
#include "backend/reference/map.h"
#include "backend/reference/register.h"
#include "model/operation/elementwise_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {

namespace {

using arithmetic::Sign;

// From dy and x, or y where the line says y (NeededByBackward in the operation agrees).
template <class C>
void RunFloat(UnaryOp op, C a, C b, std::span<const Tensor> in, const Tensor& out) {
  constexpr C k0 = 0, k1 = 1, k2 = 2, kHalf = 0.5;
  constexpr C kRootHalf = std::numbers::sqrt2_v<C> / 2;
  constexpr C kInvRootPi = std::numbers::inv_sqrtpi_v<C>;
  const auto simple = [&](auto f) { MapArithmetic<C>(in, out, f); };
  const auto math = [&](auto f) { MapMath<C>(in, out, f); };
  // clang-format off
  switch (op) {
    case UnaryOp::kAbs: return simple([](C dy, C x) { return dy * Sign(x); });
    case UnaryOp::kReciprocal: return simple([](C dy, C y) { return -dy * y * y; });
    case UnaryOp::kSquare: return simple([](C dy, C x) { return dy * (k2 * x); });
    case UnaryOp::kSqrt: return simple([](C dy, C y) { return dy / (k2 * y); });
    case UnaryOp::kExp: return simple([](C dy, C y) { return dy * y; });
    case UnaryOp::kLog: return simple([](C dy, C x) { return dy / x; });
    case UnaryOp::kErf: return math([](C dy, C x) { return dy * (k2 * kInvRootPi * std::exp(-x * x)); });
    case UnaryOp::kSin: return math([](C dy, C x) { return dy * std::cos(x); });
    case UnaryOp::kCos: return math([](C dy, C x) { return -dy * std::sin(x); });
    case UnaryOp::kTan: return simple([](C dy, C y) { return dy * (k1 + y * y); });
    // Differences of squares as products: exact near the ends, where 1 - x*x cancels.
    case UnaryOp::kAsin: return simple([](C dy, C x) { return dy / std::sqrt((k1 - x) * (k1 + x)); });
    case UnaryOp::kAcos: return simple([](C dy, C x) { return -dy / std::sqrt((k1 - x) * (k1 + x)); });
    case UnaryOp::kAtan: return simple([](C dy, C x) { return dy / (k1 + x * x); });
    case UnaryOp::kSinh: return math([](C dy, C x) { return dy * std::cosh(x); });
    case UnaryOp::kCosh: return math([](C dy, C x) { return dy * std::sinh(x); });
    case UnaryOp::kTanh: return simple([](C dy, C y) { return dy * (k1 - y * y); });
    case UnaryOp::kAsinh: return math([](C dy, C x) { return dy / std::hypot(x, k1); });
    case UnaryOp::kAcosh: return simple([](C dy, C x) { return dy / (std::sqrt(x - k1) * std::sqrt(x + k1)); });
    case UnaryOp::kAtanh: return simple([](C dy, C x) { return dy / ((k1 - x) * (k1 + x)); });
    case UnaryOp::kSigmoid: return simple([](C dy, C y) { return dy * (y * (k1 - y)); });
    case UnaryOp::kRelu: return simple([](C dy, C xy) { return xy <= k0 ? k0 : dy; });
    case UnaryOp::kSoftPlus: return math([](C dy, C x) { return dy / (k1 + std::exp(-x)); });
    case UnaryOp::kSoftSign: return simple([](C dy, C x) { x = k1 + std::fabs(x); return dy / (x * x); });
    case UnaryOp::kElu: return math([a](C dy, C x) { return x > k0 ? dy : dy * (a * std::exp(x)); });
    case UnaryOp::kSelu: return math([a, b](C dy, C x) { return x > k0 ? dy * b : dy * (b * a * std::exp(x)); });
    case UnaryOp::kLeakyRelu: return simple([a](C dy, C xy) { return xy > k0 ? dy : dy * a; });
    case UnaryOp::kHardSigmoid:
      return simple([a, b](C dy, C x) { x = a * x + b; return x > k0 && x < k1 ? dy * a : k0; });
    case UnaryOp::kClip: return simple([a, b](C dy, C x) { return x >= a && x <= b ? dy : k0; });
    // Φ(x) + x·φ(x)
    case UnaryOp::kGelu:
      return math([](C dy, C x) {
        const C density = kInvRootPi * kRootHalf * std::exp(-kHalf * x * x);
        return dy * (kHalf * std::erfc(-x * kRootHalf) + x * density);
      });
    case UnaryOp::kSilu:
      return math([](C dy, C x) {
        const C s = k1 / (k1 + std::exp(-x));
        return dy * (s * (k1 + x * (k1 - s)));
      });
    case UnaryOp::kScalarDiv: return simple([a](C dy, C x) { return -dy * ((a / x) / x); });
    case UnaryOp::kPowScalar:
      if (a == 0) return simple([](C, C) { return k0; });
      if (a == 2) return simple([](C dy, C x) { return dy * (k2 * x); });
      return math([a](C dy, C x) { return dy * (a * std::pow(x, a - k1)); });
    case UnaryOp::kScalarPow: {
      // 0^x is flat for x >= 0, where the formula would be 0·log 0.
      const C slope = std::log(a);
      if (a == 0) return simple([slope](C dy, C y) { return y <= k1 ? k0 : dy * (y * slope); });
      return simple([slope](C dy, C y) { return dy * (y * slope); });
    }
    default: throw std::logic_error("a unary derivative without a kernel");
  }
  // clang-format on
}

void Run(const UnaryBackwardSpec& spec, const Execution& execution) {
  const auto run = [&]<class C>(C) {
    const C a = static_cast<C>(execution.scalars.v[0]);
    const C b = static_cast<C>(execution.scalars.v[1]);
    RunFloat<C>(spec.kind, a, b, execution.inputs, execution.outputs[0]);
  };
  spec.dtype == kFloat64 ? run(double{}) : run(float{});
}

}  // namespace

void RegisterUnaryBackward() { RegisterReference<UnaryBackwardSpec, Run>(); }

}  // namespace singa::reference
