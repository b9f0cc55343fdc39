#pragma once

// Operations that copy elements, against a function that says where each element comes from.

#include <cmath>
#include <functional>
#include <vector>

#include "support.h"

namespace singa::test {

using Doubles = std::vector<double>;

inline constexpr DType kTypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kInt8,
                                   kUInt8,   kInt32,   kInt64,    kBool};
inline constexpr DType kIndexTypes[] = {kInt32, kInt64, kFloat32, kInt8};

inline DType AnyType(Random& random) { return kTypes[random.Int(0, 8)]; }

// Values that every type holds exactly, bool apart.
inline Tensor Whole(Random& random, const Shape& shape, DType dtype) {
  return AnyTensor(random, shape, kFloat64, 0, 100).AsType(kInt32).AsType(dtype);
}

// Whole values in [low, high], any strides.
inline Tensor Indices(Random& random, const Shape& shape, int64_t low, int64_t high) {
  std::vector<double> values(shape.Count());
  for (double& v : values) v = static_cast<double>(random.Int(low, high));
  const Tensor t = FromValues(shape, values, kIndexTypes[random.Int(0, 3)]);
  if (shape.rank() < 2 || random.Coin()) return t;
  return t.Transpose().Clone().Transpose();
}

// y[to(i)] for every element i of x is x[i]; and the gradient of such a copy is the sum over all
// that an element was copied to.
using Source = std::function<int64_t(const Index&)>;  // flat place in x, or -1 for the constant

inline void ExpectCopied(const Tensor& y, const Tensor& x, const Shape& y_shape,
                         const Source& source, double constant = 0) {
  ASSERT_EQ(y.shape(), y_shape);
  ASSERT_EQ(y.data_type(), x.data_type());
  const Doubles xs = Values(x), ys = Values(y);
  Doubles expected;
  ForEachIndex(y_shape, [&](const Index& index) {
    const int64_t from = source(index);
    expected.push_back(from < 0 ? constant : xs[from]);
  });
  ASSERT_EQ(ys, expected);
}

inline void ExpectAdjoint(const Tensor& dx, const Tensor& dy, const Shape& x_shape,
                          const Source& source) {
  ASSERT_EQ(dx.shape(), x_shape);
  const Doubles dys = Values(dy), dxs = Values(dx);
  Doubles expected(x_shape.Count(), 0), magnitude = expected;
  size_t at = 0;
  ForEachIndex(dy.shape(), [&](const Index& index) {
    const int64_t from = source(index);
    if (from >= 0) {
      expected[from] += dys[at];
      magnitude[from] += std::abs(dys[at]);
    }
    ++at;
  });
  for (size_t i = 0; i < dxs.size(); ++i)
    ASSERT_NEAR(dxs[i], expected[i], Epsilon(dy.data_type()) * magnitude[i]) << i;
}

}  // namespace singa::test
