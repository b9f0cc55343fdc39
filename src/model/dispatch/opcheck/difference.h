#pragma once

// The tolerance of OPCHECK: compares results with those of `reference`.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "singa/core/tensor.h"

namespace singa::opcheck {

/// What `reference` computes for a call.
struct Expected {
  std::vector<Tensor> results;          ///< plain; none where `reference` does not take the call
  std::vector<std::string> names = {};  ///< of the results; none: their numbers
  /// For each result the magnitude of the terms that each element sums, which the tolerance
  /// follows. Empty: the largest result. Of integers it is the difference that rounding may make;
  /// empty: none.
  std::vector<Tensor> bound = {};
  int64_t sum_length = 1;
  bool exact = false;  ///< bit by bit, but for the bits of NaN
};
/// How far results are from the expected ones.
struct Difference {
  bool compared = false;  ///< false where there is nothing to compare
  double ratio = 0;       ///< the largest |difference| / tolerance
  std::string text = {};  ///< where that is, if it is above 1
};
/// The difference that is allowed between two elements of this type.
class Tolerance {
 public:
  /// `terms_known`: of each element, the magnitude of the terms that it sums is known.
  /// `factor_error`: the plan's.
  Tolerance(DType dtype, int64_t sum_length, bool terms_known, double factor_error = 0);
  /// For an expected element `want` whose terms have this magnitude.
  double For(double magnitude, double want) const;

 private:
  double relative_, rounding_, smallest_;
};

/// The error of a transform is larger than that of a plain sum: for convolutions two to nine times
/// (root mean square, docs/developers/experiments.md). Where a sum has only a few terms, all of a
/// tile has up to four times the bound of a plain sum.
inline constexpr double kSpreadFactor = 8;

/// Compares plain outputs of a plan. Integers without a bound have to be equal.
Difference FindDifference(std::span<const Tensor> chosen, const Expected& expected,
                          bool spreads_error = false, double factor_error = 0);
/// The elements of `t`, in row-major order.
using Values = std::vector<double>;
Values Read(const Tensor& t);
/// A float64 tensor of them on the host.
Tensor Write(const Values& values, const Shape& shape);
/// |t|, contiguous; integers and bool unchanged.
Tensor AbsoluteValue(const Tensor& t);

}  // namespace singa::opcheck
