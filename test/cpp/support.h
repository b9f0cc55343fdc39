#pragma once

// Helpers for tests of operations: tensors from values and back, random tensors and views with
// fixed seeds, and loops over all positions of a shape for naive results.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "singa/core/tensor.h"
#include "singa/core/threads.h"
#include "singa/dispatch/opcheck.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::test {

using Index = std::vector<int64_t>;
using Vector = std::vector<double>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// A small random number generator (splitmix64), with the same sequence on all platforms.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A number in [low, high], both inclusive.
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Bits() % static_cast<uint64_t>(high - low + 1));
  }
  double Real(double low = -1, double high = 1) {
    return low + (high - low) * static_cast<double>(Bits() >> 11) * 0x1p-53;
  }
  bool Coin() { return Bits() >> 63; }
  /// A shape with lengths in [low, high].
  Shape Dims(int rank, int64_t low, int64_t high) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(Int(low, high));
    return shape;
  }

 private:
  uint64_t state_;
};

/// Relative rounding error of a float type.
inline double Epsilon(DType dtype) {
  switch (dtype) {
    case kFloat64:
      return 0x1p-52;
    case kFloat32:
      return 0x1p-23;
    case kFloat16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

/// Spacing of the smallest values of a float type: a bound of the rounding error near zero.
inline double Smallest(DType dtype) {
  switch (dtype) {
    case kFloat64:
      return 0x1p-1074;
    case kFloat32:
      return 0x1p-149;
    case kFloat16:
      return 0x1p-24;
    default:
      return 0x1p-133;
  }
}

/// A tensor with row-major `values`, rounded to `dtype`.
inline Tensor FromValues(const Shape& shape, const Vector& values, DType dtype = kFloat32) {
  Tensor wide(shape, nullptr, kFloat64);
  wide.CopyFromHost(values.data(), values.size() * sizeof(double));
  return wide.AsType(dtype);
}

inline Vector Values(const Tensor& t) {
  const Tensor wide = t.AsType(kFloat64).Contiguous();
  Vector values(static_cast<size_t>(t.size()));
  wide.CopyToHost(values.data(), values.size() * sizeof(double));
  return values;
}

/// The float32 elements as they are copied to the host.
inline std::vector<float> Floats(const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.size()));
  if (!values.empty()) t.CopyToHost(values.data(), values.size() * sizeof(float));
  return values;
}

/// A tensor of 0, 1, 2 ...
inline Tensor Iota(const Shape& shape) {
  Vector values(static_cast<size_t>(shape.Count()));
  std::iota(values.begin(), values.end(), 0);
  return FromValues(shape, values);
}

/// The values of each tensor, none of an empty one.
inline std::vector<Vector> ValuesOf(const std::vector<Tensor>& tensors) {
  std::vector<Vector> values;
  for (const Tensor& t : tensors) values.push_back(t.empty() ? Vector() : Values(t));
  return values;
}

inline Tensor RandomTensor(Random& random, const Shape& shape, DType dtype = kFloat32,
                           double low = -1, double high = 1) {
  Vector values(static_cast<size_t>(shape.Count()));
  for (double& v : values) v = random.Real(low, high);
  return FromValues(shape, values, dtype);
}

/// Integers in [low, high], both inclusive.
inline Tensor RandomIntegers(Random& random, const Shape& shape, int64_t low, int64_t high,
                             DType dtype) {
  Vector values(static_cast<size_t>(shape.Count()));
  for (double& v : values) v = static_cast<double>(random.Int(low, high));
  return FromValues(shape, values, dtype);
}

/// A strided view with random values: permuted axes and steps of -2 to 2.
inline Tensor RandomView(Random& random, const Shape& shape, DType dtype = kFloat32,
                         double low = -1, double high = 1) {
  std::vector<int64_t> order(shape.rank());
  std::iota(order.begin(), order.end(), 0);
  for (int i = shape.rank() - 1; i > 0; --i) std::swap(order[i], order[random.Int(0, i)]);
  Shape stored;
  std::vector<int64_t> back(shape.rank());
  Index steps(shape.rank());
  for (int i = 0; i < shape.rank(); ++i) {
    back[order[i]] = i;
    steps[i] = random.Coin() ? 1 : random.Int(1, 2) * (random.Coin() ? 1 : -1);
    stored.push_back(shape[order[i]] * std::abs(steps[i]));
  }
  Tensor t = RandomTensor(random, stored, dtype, low, high);
  for (int i = 0; i < shape.rank(); ++i) {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    if (steps[i] > 0) t = t.SliceAxis(i, 0, kEnd, steps[i]);
    if (steps[i] < 0) t = t.SliceAxis(i, kEnd, std::numeric_limits<int64_t>::min(), steps[i]);
  }
  return shape.rank() == 0 ? t : t.Transpose(back);
}

/// A random tensor that is contiguous or a strided view, at random.
inline Tensor AnyTensor(Random& random, const Shape& shape, DType dtype = kFloat32, double low = -1,
                        double high = 1) {
  return random.Coin() ? RandomTensor(random, shape, dtype, low, high)
                       : RandomView(random, shape, dtype, low, high);
}

/// Calls visit(index) for each position, in row-major order.
inline void ForEachIndex(const Shape& shape, const std::function<void(const Index&)>& visit) {
  Index index(shape.rank(), 0);
  for (int64_t i = 0, n = shape.Count(); i < n; ++i) {
    visit(index);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

/// Row-major position of `index`.
inline size_t Flat(const Shape& shape, const Index& index) {
  int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) flat = flat * shape[axis] + index[axis];
  return static_cast<size_t>(flat);
}

/// Expects each element to be within its tolerance of `want`, plus half a step of the tensor's
/// type. Infinities and NaN must match. Reports the worst element.
inline void ExpectNear(const Tensor& got, const Vector& want, const Vector& tolerance,
                       const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(got.size()), want.size()) << what;
  const Vector values = Values(got);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double excess = 0;
    if (std::isfinite(want[i])) {
      const double allowed = tolerance[i] + 0.5 * Epsilon(got.data_type()) * std::abs(want[i]) +
                             Smallest(got.data_type());
      excess = std::abs(values[i] - want[i]) / allowed;
      if (std::isnan(excess)) excess = kInf;
    } else if (!(values[i] == want[i] || (std::isnan(values[i]) && std::isnan(want[i])))) {
      excess = kInf;
    }
    if (excess > worst) {
      worst = excess;
      at = i;
    }
  }
  EXPECT_LE(worst, 1) << what << "[" << at << "] of " << got.ToString() << " is " << values[at]
                      << ", expected " << want[at] << " within " << tolerance[at];
}

/// Keeps a setting, or sets it, until the end of the scope.
template <auto Get, auto Set>
class SettingScope {
 public:
  SettingScope() = default;
  explicit SettingScope(decltype(Get()) value) { Set(value); }
  ~SettingScope() { Set(before_); }
  SettingScope(const SettingScope&) = delete;
  SettingScope& operator=(const SettingScope&) = delete;

 private:
  decltype(Get()) before_ = Get();
};
using OpcheckScope = SettingScope<GetOpcheck, SetOpcheck>;
using PreferenceScope = SettingScope<GetPreference, SetPreference>;
using PrecisionScope = SettingScope<GetFloat32Precision, SetFloat32Precision>;
using StrictScope = SettingScope<IsStrict, SetStrict>;
using ThreadCount = SettingScope<NumThreads, SetNumThreads>;

/// Expects compute() to be the same on one thread and on each number of threads. Returns it.
template <class Fn>
auto SameOnThreads(const std::vector<int>& numbers, const Fn& compute) {
  const ThreadCount scope(1);
  const auto want = compute();
  for (const int threads : numbers) {
    SetNumThreads(threads);
    EXPECT_EQ(compute(), want) << threads << " threads";
  }
  return want;
}

/// The reference implementation and the default one.
inline constexpr Preference kImplementations[] = {Preference::kReference, Preference::kFastest};

/// Calls test() with each implementation.
template <class Test>
void ForEachImplementation(const Test& test) {
  for (const Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    const PreferenceScope scope(preference);
    test();
  }
}

/// Runs the tests of a suite with each preference.
class EachPreference : public testing::TestWithParam<Preference> {
  PreferenceScope scope_{GetParam()};
};
#define TEST_SUITE_OF_EACH_PREFERENCE(Suite)                       \
  using Suite = EachPreference;                                    \
  INSTANTIATE_TEST_SUITE_P(                                        \
      Implementations, Suite, testing::ValuesIn(kImplementations), \
      [](const auto& info) { return std::string(PreferenceName(info.param)); })

/// The same, with one tolerance for all elements.
inline void ExpectNear(const Tensor& got, const Vector& want, double tolerance,
                       const std::string& what) {
  ExpectNear(got, want, Vector(want.size(), tolerance), what);
}

/// Expects equal numbers. NaN equals NaN.
inline void ExpectSame(const Vector& got, const Vector& want, const std::string& what = "") {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << what << "[" << i << "] is " << got[i] << ", expected " << want[i];
}

inline void ExpectPart(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "text: " << text << "\nlacks: " << part;
}

/// Expects fn() to throw exactly `Error`, with facts or without, and `part` in its message.
template <class Error, class Fn>
void ExpectError(const Fn& fn, const std::string& part) {
  try {
    fn();
    ADD_FAILURE() << "nothing was raised; expected: " << part;
  } catch (const Error& error) {
    if (!dynamic_cast<const ErrorWithFacts<Error>*>(&error))
      EXPECT_EQ(typeid(error), typeid(Error)) << error.what();
    ExpectPart(error.what(), part);
  }
}

/// The same of an expression.
#define EXPECT_ERROR(Error, part, ...) ExpectError<Error>([&] { __VA_ARGS__; }, part)

}  // namespace singa::test
