#include <cmath>

#include "model/operation/check.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/pooling.h"

// The p-norm of windows is a mean of powers, so it runs on the kernels of average pooling:
//
//   y  = (taps · mean |x|^p)^(1/p)
//   dx = taps · |x|^(p−1) · sign(x) · (gradient of the mean at dy · y^(1−p))

namespace singa {
namespace {

void CheckArguments(const char* op, const PoolingHandle& handle, const Tensor& x, double p) {
  CheckFloat(op, "x", x);
  Check(p > 0 && std::isfinite(p), op, "p must be finite and larger than 0, got ", p);
  Check(handle.mode == PoolMode::kAverageExcludePad, op,
        "the handle must be one of averages that do not count padding");
  for (const Recorder::Axis& axis : handle.recorder.axes)
    Check(axis.before == 0 && axis.after == 0, op, "the handle must be without padding, got ",
          handle.recorder.ToString());
}

/// Powers of 16-bit floats would have few digits left.
Tensor Wide(const Tensor& t) { return SizeOf(t.data_type()) < 4 ? t.AsType(kFloat32) : t; }

Tensor Power(const Tensor& x, double p) {
  if (p == 1) return x;
  if (p == 2) return Unary(UnaryOp::kSquare, x);
  return p == 0.5 ? Unary(UnaryOp::kSqrt, x) : Unary(UnaryOp::kPowScalar, x, p);
}

/// `value`, or 0 where `base` is 0.
Tensor WhereNotZero(const Tensor& base, const Tensor& value) {
  return Where(base, value, Full({}, 0, value.device(), value.data_type()));
}

/// The derivative of |x|^p / p.
Tensor Slope(const Tensor& x, double p) {
  if (p == 2) return x;
  const Tensor sign = Unary(UnaryOp::kSign, x);
  if (p == 1) return sign;
  const Tensor slope = Binary(BinaryOp::kMul, sign, Power(Unary(UnaryOp::kAbs, x), p - 1));
  return p > 1 ? slope : WhereNotZero(x, slope);  // 0 · infinity
}

}  // namespace

Tensor LpPoolForward(const PoolingHandle& handle, const Tensor& x, double p) {
  CheckArguments("LpPoolForward", handle, x, p);
  const Tensor powers = Power(p == 2 ? Wide(x) : Unary(UnaryOp::kAbs, Wide(x)), p);
  const Tensor mean = PoolingForward(handle, powers, false)[0];
  const auto taps = static_cast<double>(handle.recorder.taps());
  return Power(Unary(UnaryOp::kMulScalar, mean, taps), 1 / p).AsType(x.data_type());
}

Tensor LpPoolBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                      const Tensor& y, double p) {
  constexpr const char* kOp = "LpPoolBackward";
  CheckArguments(kOp, handle, x, p);
  CheckDType(kOp, "dy", dy, x.data_type());
  CheckLike(kOp, "y", y, "dy", dy);
  const Tensor values = Wide(x), norms = Wide(y);
  Tensor gradient = Wide(dy);
  if (p != 1) {
    const Tensor scaled =
        Binary(BinaryOp::kMul, gradient, Unary(UnaryOp::kPowScalar, norms, 1 - p));
    gradient = WhereNotZero(norms, scaled);
  }
  const Tensor mean = PoolingBackward(handle, gradient, values, {}, {});
  const Tensor dx = Binary(BinaryOp::kMul, mean, Slope(values, p));
  const auto taps = static_cast<double>(handle.recorder.taps());
  return Unary(UnaryOp::kMulScalar, dx, taps).AsType(x.data_type());
}

}  // namespace singa
