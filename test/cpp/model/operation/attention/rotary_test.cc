// Rotary position embedding against its formula in float64, over random geometries and views.

#include "singa/operation/rotary.h"

#include <cmath>

#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::ExpectError;
using test::ExpectNear;
using test::kImplementations;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Values;
using Vector = std::vector<double>;

TEST(Rotary, IsTheFormulaBothWays) {
  Random random(41);
  constexpr DType kTypes[] = {kFloat32, kBFloat16, kFloat64, kFloat16};
  for (int round = 0; round < 80 && !testing::Test::HasFailure(); ++round) {
    const DType dtype = kTypes[round % 4];
    const int64_t batch = random.Int(1, 3), heads = random.Int(1, 4), length = random.Int(1, 5);
    const int64_t dim = random.Int(1, 40), pairs = random.Int(0, dim / 2);
    const bool interleaved = random.Coin(), each = random.Coin();
    const Shape shape{batch, heads, length, dim};
    const Tensor x = AnyTensor(random, shape, dtype);
    const Shape table = each ? Shape{batch, length, pairs} : Shape{length, pairs};
    const DType types[] = {kFloat32, dtype};
    const Tensor cos = AnyTensor(random, table, types[random.Int(0, 1)]);
    const Tensor sin = AnyTensor(random, table, types[random.Int(0, 1)]);
    const Vector xs = Values(x), cs = Values(cos), ss = Values(sin);
    SCOPED_TRACE(x.ToString() + " by " + table.ToString());
    for (const double sign : {1.0, -1.0}) {
      Vector y = xs, bound(xs.size(), 0);
      for (int64_t row = 0; row < batch * heads * length; ++row)
        for (int64_t i = 0; i < pairs; ++i) {
          const int64_t b = row / length / heads, n = row % length;
          const auto at = static_cast<size_t>(((each ? b : 0) * length + n) * pairs + i);
          const auto p = static_cast<size_t>(row * dim + (interleaved ? 2 * i : i));
          const auto q = static_cast<size_t>(row * dim + (interleaved ? 2 * i + 1 : i + pairs));
          y[p] = xs[p] * cs[at] - sign * xs[q] * ss[at];
          y[q] = sign * xs[p] * ss[at] + xs[q] * cs[at];
          const double step = dtype == kFloat64 ? 0x1p-51 : 0x1p-22;
          bound[p] = step * (std::abs(xs[p] * cs[at]) + std::abs(xs[q] * ss[at]));
          bound[q] = step * (std::abs(xs[p] * ss[at]) + std::abs(xs[q] * cs[at]));
        }
      for (const Preference preference : kImplementations) {
        PreferenceScope scope(preference);
        const Tensor got =
            sign > 0 ? Rotary(x, cos, sin, interleaved) : RotaryBackward(x, cos, sin, interleaved);
        EXPECT_EQ(got.shape(), shape);
        EXPECT_EQ(got.data_type(), dtype);
        ExpectNear(got, y, bound, sign > 0 ? "y" : "dx");
      }
    }
  }
}

TEST(Rotary, NothingToDo) {
  Random random(42);
  for (const Shape& shape : {Shape{0, 2, 3, 4}, {2, 0, 3, 4}, {2, 2, 0, 4}, {2, 2, 3, 0}}) {
    const Tensor x = RandomTensor(random, shape);
    const Tensor table({shape[2], shape[3] / 2});
    EXPECT_EQ(Rotary(x, table, table).shape(), shape);
  }
}

TEST(Rotary, RefusesWhatIsWrong) {
  using Error = std::invalid_argument;
  const Tensor x({2, 3, 5, 8}), table({5, 4});
  ExpectError<Error>([&] { Rotary({}, table, table); }, "[Rotary] x is an empty tensor");
  ExpectError<TypeError>([&] { Rotary(x.AsType(kInt32), table, table); },
                         "[Rotary] x must be of a float type");
  ExpectError<Error>(
      [&] {
        Rotary(Tensor({3, 5, 8}), table, table);
      },
      "x must have shape (B, H, N, D), got (3, 5, 8)");
  ExpectError<Error>([&] { Rotary(x, Tensor({5, 5}), table); }, "cos must have shape");
  ExpectError<Error>([&] { Rotary(x, table, Tensor({4, 4})); }, "sin must have shape");
  ExpectError<Error>([&] { Rotary(x, Tensor({3, 5, 4}), table); }, "cos must have shape");
  ExpectError<Error>(
      [&] {
        Rotary(x, Tensor({5, 3}), table);
      },
      "cos and sin must have one shape, got (5, 3) and (5, 4)");
  ExpectError<Error>([&] { RotaryBackward(table, table, table); },
                     "[RotaryBackward] dy must have shape");
}

}  // namespace
}  // namespace singa
