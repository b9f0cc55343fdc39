#pragma once

// The logarithm of the gamma function, its derivatives, and the inverse of erf. Numbers are
// computed in double, and loops over them are LoopKind::kCalls.

#include <cmath>
#include <limits>
#include <numbers>

namespace singa::formula {

namespace detail {

/// log Γ(x). The C library's lgamma writes the sign of Γ to a variable of all threads.
[[gnu::always_inline]] constexpr double LogGamma(double x) {
#ifdef __CUDA_ARCH__
  return std::lgamma(x);
#else
  int sign = 0;
  return __builtin_lgamma_r(x, &sign);
#endif
}

/// ψ(x) = Γ'(x) / Γ(x): by reflection below 0, else by ψ(x) = ψ(x + 1) − 1 / x and the asymptotic
/// series (Abramowitz and Stegun 6.3.7, 6.3.5, 6.3.18).
constexpr double Digamma(double x) {
  if (x == 0) return -1 / x;
  double sum = 0;
  if (x < 0) {
    const double rest = x - std::trunc(x);
    if (!(rest != 0)) return std::numeric_limits<double>::quiet_NaN();  // at a pole, and at -inf
    sum = -std::numbers::pi / std::tan(std::numbers::pi * rest);
    x = 1 - x;
  }
  for (; x < 12; ++x) sum -= 1 / x;
  // B(2k) / 2k, for k = 1 to 7
  constexpr double kTerms[] = {1. / 12,  -1. / 120,     1. / 252, -1. / 240,
                               1. / 132, -691. / 32760, 1. / 12};
  double power = 1, tail = 0;
  for (double term : kTerms) tail += term * (power /= x * x);
  return sum + (std::log(x) - 0.5 / x - tail);
}

/// Hurwitz's ζ(s, q) = Σ (q + k)^−s over k >= 0, for s >= 2 and q > 0, by the summation of Euler
/// and Maclaurin.
constexpr double HurwitzZeta(double s, double q) {
  double sum = 0;
  // No more terms for orders that no function offers.
  for (const double last = s < 180 ? 10 + s : 190; q < last; ++q) sum += std::pow(q, -s);
  // B(2k) / (2k)!, for k = 1 to 9
  constexpr double kTerms[] = {1. / 12,
                               -1. / 720,
                               1. / 30240,
                               -1. / 1209600,
                               1. / 47900160,
                               -691. / 1307674368000,
                               1. / 74724249600,
                               -3617. / 10670622842880000,
                               43867. / 5109094217170944000};
  const double power = std::pow(q, -s);
  double factor = s / q, tail = 0.5;
  for (int k = 0; k < 9; ++k) {
    tail += kTerms[k] * factor;
    factor *= (s + (2 * k + 1)) * (s + (2 * k + 2)) / (q * q);
  }
  return sum + std::pow(q, 1 - s) / (s - 1) + power * tail;
}

/// The derivative of order n >= 1 of ψ, (−1)^(n + 1)·n!·ζ(n + 1, x) (Abramowitz and Stegun 6.4.10).
constexpr double DigammaDerivative(int n, double x) {
  const double s = n + 1, sign = n % 2 == 0 ? -1 : 1;
  double zeta = std::numeric_limits<double>::infinity();  // at a pole
  if (x > 0) {
    zeta = HurwitzZeta(s, x);
  } else if (x != std::floor(x)) {
    // The terms of the sum behind 0, and those before it. Both distances are exact.
    const double below = std::floor(x), after = x - below, before = (below + 1) - x;
    zeta = (HurwitzZeta(s, after) + sign * HurwitzZeta(s, before)) - sign * HurwitzZeta(s, 1 - x);
  } else if (!std::isfinite(x)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return sign * std::tgamma(s) * zeta;
}

/// The y with erf(y) = x: Winitzki's approximation, which is right to 0.2 %, and two steps of
/// Halley's method, each of which triples the number of right digits.
constexpr double ErfInverse(double x) {
  const double size = std::fabs(x);
  if (!(size < 1)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return size == 1 ? x * infinity : std::numeric_limits<double>::quiet_NaN();
  }
  constexpr double kA = 0.147;
  const double logarithm = std::log1p(-x * x);
  const double middle = 2 / (std::numbers::pi * kA) + logarithm / 2;
  double y = std::sqrt(std::sqrt(middle * middle - logarithm / kA) - middle);
  for (int step = 0; step < 2; ++step) {
    // 1 − size is exact in the upper half, where erf(y) has lost the digits.
    const double error = size > 0.5 ? (1 - size) - std::erfc(y) : std::erf(y) - size;
    const double change = error * std::exp(y * y) / (2 * std::numbers::inv_sqrtpi);
    y -= change / (1 + y * change);
  }
  return std::copysign(y, x);
}

}  // namespace detail

template <class C>
constexpr C LogGamma(C x) {
  return static_cast<C>(detail::LogGamma(static_cast<double>(x)));
}
/// The derivative of order `n` of ψ, and ψ itself for 0.
template <class C>
constexpr C PolyGamma(C x, C n) {
  const auto wide = static_cast<double>(x);
  return static_cast<C>(n < C(1) ? detail::Digamma(wide)
                                 : detail::DigammaDerivative(static_cast<int>(n), wide));
}
template <class C>
constexpr C ErfInverse(C x) {
  return static_cast<C>(detail::ErfInverse(static_cast<double>(x)));
}

}  // namespace singa::formula
