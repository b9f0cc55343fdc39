// Batch normalisation from sums that the convolution before it has taken.

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/batchnorm_naive.h"
#include "model/operation/batchnorm/spec.h"
#include "singa/core/device.h"
#include "singa/operation/batchnorm.h"
#include "support.h"

namespace singa::test {
namespace {

/// By reference, as the convolution before it would have had it: sums rounded to the statistics'
/// type. y, mean, variance and both running statistics, which were 1.
std::vector<Tensor> FromSums(const Tensor& x, double factor) {
  const Layout layout(x.shape());
  const Vector values = Values(x);
  Vector sums(static_cast<size_t>(layout.channels)), squares(sums.size());
  for (int64_t c = 0; c < layout.channels; ++c)
    layout.ForChannel(c, [&](size_t i) {
      sums[static_cast<size_t>(c)] += values[i];
      squares[static_cast<size_t>(c)] += values[i] * values[i];
    });
  const BatchNormFromSumsSpec spec{{{x.shape(), x.data_type()}}};
  const DType type = Statistics(x.data_type());
  const Shape channels{layout.channels};
  const Tensor mean = Full(channels, 1, nullptr, type), var = Full(channels, 1, nullptr, type);
  const std::vector<Tensor> results = {Tensor(x.shape(), nullptr, x.data_type()),
                                       Tensor(channels, nullptr, type),
                                       Tensor(channels, nullptr, type), mean, var};
  Scalars scalars;
  scalars.v[0] = factor;
  const std::vector<Tensor> inputs = {x,
                                      Tensor(),
                                      Tensor(),
                                      mean,
                                      var,
                                      Tensor(),
                                      FromValues(channels, sums, type),
                                      FromValues(channels, squares, type)};
  Run(spec, DefaultDevice(), FindPlan(*DefaultDevice(), spec), inputs, results, scalars);
  return results;
}

TEST(BatchNormFromSums, IsTheForwardPassFromItsOwnSums) {
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16, kFloat64}) {
    SCOPED_TRACE(DTypeName(dtype));
    Random random(5);
    const Tensor x = RandomTensor(random, {4, 5, 6, 3}, dtype, -1, 2);
    const Tensor mean = Full({5}, 1, nullptr, Statistics(dtype)), var = mean.Clone();
    const PreferenceScope reference(Preference::kReference);
    std::vector<Tensor> want =
        BatchNormForwardTraining(BatchNormHandle(0.3, x, 1e-5), x, Tensor(), Tensor(), mean, var);
    want.insert(want.end(), {mean, var});
    const std::vector<Tensor> got = FromSums(x, 0.3);
    for (size_t i = 0; i < want.size(); ++i) {
      const Vector values = Values(want[i]);
      const double bound = 16 * (i == 0 ? Epsilon(dtype) : Epsilon(Statistics(dtype)));
      ExpectNear(got[i], values, Vector(values.size(), bound), "result " + std::to_string(i));
    }
  }
}

TEST(BatchNormFromSums, VarianceIsAsGoodAsTheSumsAreRounded) {
  // Each sum is off by half a step of float32, and the mean enters squared.
  for (const double mean : {1., 10., 100., 1000.}) {
    Random random(6);
    const Tensor x = RandomTensor(random, {8, 16, 9, 9}, kFloat32, mean - 1, mean + 1);
    const Expected want = NaiveForward(x.shape(), Values(x), Vector(16, 1), Vector(16, 0), 1e-5, 0);
    const Vector got = Values(FromSums(x, 0.1)[2]);
    for (size_t c = 0; c < got.size(); ++c)
      EXPECT_NEAR(got[c], want.var[c], 0x1p-22 * (want.var[c] + mean * mean)) << mean;
  }
}

TEST(BatchNormFromSums, NoVarianceIsBelowZero) {
  for (const double value : {0.1, 3.3, 1234.5}) {
    const std::vector<Tensor> got = FromSums(Full({3, 4, 5, 7}, value, nullptr, kFloat32), 0.1);
    for (const double v : Values(got[2])) {
      EXPECT_GE(v, 0);
      EXPECT_LE(v, 0x1p-22 * value * value);
    }
  }
}

}  // namespace
}  // namespace singa::test
