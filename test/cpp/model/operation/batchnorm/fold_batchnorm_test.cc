#include "singa/core/device.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "support.h"

namespace singa::test {
namespace {

DType StatisticsOf(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

TEST(FoldBatchNormTest, IsTheFormula) {
  Random random(1);
  for (int i = 0; i < 120; ++i) {
    const DType dtypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16};
    const DType dtype = dtypes[i % 4], wide = StatisticsOf(dtype);
    const int64_t out = random.Int(1, 20);
    const Shape shape = i % 3 ? Shape{out, random.Int(1, 9), random.Int(1, 3), random.Int(1, 3)}
                              : Shape{out, random.Int(0, 30)};
    const Tensor w = AnyTensor(random, shape, dtype), mean = AnyTensor(random, {out}, wide);
    const Tensor var = AnyTensor(random, {out}, wide, 0.01, 4);
    const Tensor b = random.Coin() ? AnyTensor(random, {out}, dtype) : Tensor();
    const Tensor scale = random.Coin() ? AnyTensor(random, {out}, wide) : Tensor();
    const Tensor bias = random.Coin() ? AnyTensor(random, {out}, wide) : Tensor();
    const double epsilon = random.Real(1e-6, 0.1);
    const std::vector<Tensor> folded = FoldBatchNorm(w, b, scale, bias, mean, var, epsilon);

    const auto values = [&](const Tensor& t, double otherwise) {
      return t.empty() ? Vector(static_cast<size_t>(out), otherwise) : Values(t);
    };
    const Vector ws = Values(w), bs = values(b, 0), scales = values(scale, 1),
                 biases = values(bias, 0), means = Values(mean), vars = Values(var);
    Vector filter, filter_error, shift, shift_error;
    const size_t length = ws.size() / static_cast<size_t>(out);
    for (size_t c = 0; c < static_cast<size_t>(out); ++c) {
      const double factor = scales[c] / std::sqrt(vars[c] + epsilon);
      for (size_t k = 0; k < length; ++k) filter.push_back(ws[c * length + k] * factor);
      shift.push_back((bs[c] - means[c]) * factor + biases[c]);
      // Computed in float64 and rounded once, which ExpectNear allows for.
      shift_error.push_back(
          0x1p-50 * (std::abs(bs[c] * factor) + std::abs(means[c] * factor) + std::abs(biases[c])));
    }
    for (double v : filter) filter_error.push_back(0x1p-50 * std::abs(v));
    ASSERT_EQ(folded.size(), 2u);
    ASSERT_EQ(folded[0].shape(), shape);
    ASSERT_EQ(folded[1].shape(), Shape({out}));
    ASSERT_EQ(folded[0].data_type(), dtype);
    ASSERT_EQ(folded[1].data_type(), dtype);
    ExpectNear(folded[0], filter, filter_error, "W'");
    ExpectNear(folded[1], shift, shift_error, "b'");
  }
}

/// relu(bn(conv(x)) + add) equals relu(conv'(x) + add).
TEST(FoldBatchNormTest, ConvolutionDoesBoth) {
  for (const Preference preference : kImplementations) {
    const PreferenceScope scope(preference);
    Random random(2);
    const Shape x_shape = {2, 16, 8, 7};
    const Tensor x = RandomTensor(random, x_shape), w = RandomTensor(random, {24, 16, 3, 3});
    const Tensor add = RandomTensor(random, {2, 24, 8, 7});
    const Tensor scale = RandomTensor(random, {24}), bias = RandomTensor(random, {24}),
                 mean = RandomTensor(random, {24}),
                 var = RandomTensor(random, {24}, kFloat32, 0.1, 2);
    const ConvHandle plain(x, {3, 3}, {1, 1}, {1, 1}, 16, 24, false);
    const ConvHandle biased(x, {3, 3}, {1, 1}, {1, 1}, 16, 24, true);
    const Tensor y = ConvForward(x, w, Tensor(), plain);
    const Tensor apart =
        BatchNormForwardInference(BatchNormHandle(0.1, y), y, scale, bias, mean, var, add, true);
    const std::vector<Tensor> folded = FoldBatchNorm(w, Tensor(), scale, bias, mean, var);
    const Tensor together = ConvForward(x, folded[0], folded[1], biased, add, true);
    // Sums of 144 products below 1, times a factor below √10.
    const Vector want = Values(apart);
    ExpectNear(together, want, Vector(want.size(), 16 * Epsilon(kFloat32) * 12 * std::sqrt(10)),
               "y");
  }
}

TEST(FoldBatchNormTest, WrongCalls) {
  const Tensor w({4, 3, 2, 2}), c({4});
  using E = std::invalid_argument;
  EXPECT_ERROR(E, "[FoldBatchNorm] W is an empty", FoldBatchNorm(Tensor(), c, c, c, c, c));
  EXPECT_ERROR(E, "W must have shape (out, ...)", FoldBatchNorm(c, c, c, c, c, c));
  EXPECT_ERROR(E, "b must have shape (4,), got (3,)", FoldBatchNorm(w, Tensor({3}), c, c, c, c));
  EXPECT_ERROR(E, "scale must have shape", FoldBatchNorm(w, c, Tensor({4, 1}), c, c, c));
  EXPECT_ERROR(E, "bias must have shape", FoldBatchNorm(w, c, c, Tensor({5}), c, c));
  EXPECT_ERROR(E, "running_mean is an empty", FoldBatchNorm(w, c, c, c, Tensor(), c));
  EXPECT_ERROR(E, "running_var must have", FoldBatchNorm(w, c, c, c, c, Tensor({1})));
  EXPECT_ERROR(E, "epsilon must be finite", FoldBatchNorm(w, c, c, c, c, c, -1));
  EXPECT_ERROR(TypeError, "of a float", FoldBatchNorm(w.AsType(kInt32), c, c, c, c, c));
  EXPECT_ERROR(TypeError, "b must be float32", FoldBatchNorm(w, c.AsType(kFloat64), c, c, c, c));
  EXPECT_ERROR(TypeError, "running_var must be float32",
               FoldBatchNorm(w, c, c, c, c, c.AsType(kFloat64)));
  const DevicePtr other = CreateCpuDevice();
  EXPECT_ERROR(E, "running_mean is on ", FoldBatchNorm(w, c, c, c, c.ToDevice(other), c));
}

}  // namespace
}  // namespace singa::test
