#pragma once

// Losses that sum over pairs of elements.

#include <cmath>

#include "model/formula/arithmetic.h"
#include "model/operation/loss/spec.h"

namespace singa::formula {

// Bounds of the logarithm and its derivative: those of SINGA's cross_entropy and of PyTorch's
// binary_cross_entropy.
inline constexpr double kLeastProbability = 1e-10;
inline constexpr double kLeastLog = -100;
inline constexpr double kLeastVariance = 1e-12;

/// The larger one; a NaN in a stays.
template <class C>
constexpr C AtLeast(C a, C b) {
  return a < b ? b : a;
}

/// One term of the sum.
constexpr double PairTerm(PairLoss kind, double x, double t, double margin) {
  switch (kind) {
    case PairLoss::kCrossEntropy:
      return -t * std::log(AtLeast(x, kLeastProbability));
    case PairLoss::kBinaryCrossEntropy:
      return -(t * AtLeast(std::log(x), kLeastLog) + (1 - t) * AtLeast(std::log1p(-x), kLeastLog));
    case PairLoss::kMeanSquareError:
      return (x - t) * (x - t);
    case PairLoss::kRanking:
      return AtLeast(margin - (x - t), 0.0);
    case PairLoss::kCount:
      break;
  }
  return 0;
}

/// The derivative of the term for x, times slope.
template <class C>
[[gnu::always_inline]] constexpr C PairGradient(PairLoss kind, C slope, C x, C t, C margin) {
  switch (kind) {
    case PairLoss::kCrossEntropy:
      return -slope * t / AtLeast(x, static_cast<C>(kLeastProbability));
    case PairLoss::kBinaryCrossEntropy:
      return slope * (x - t) / AtLeast((C(1) - x) * x, static_cast<C>(kLeastVariance));
    case PairLoss::kMeanSquareError:
      return slope * (C(2) * (x - t));
    case PairLoss::kRanking:
      return margin - (x - t) > C(0) ? -slope : C(0);
    case PairLoss::kCount:
      break;
  }
  return C(0);
}

}  // namespace singa::formula
