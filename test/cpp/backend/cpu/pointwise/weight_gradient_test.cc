// The gradient of filters by pairs of pixels, against the definition in float64.

#include "backend/cpu/pointwise/convolution.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/conv_naive.h"

namespace singa::test {
namespace {

class PointwiseWeightGradient : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Avx512, PointwiseWeightGradient, testing::Bool());

ConvSpec SpecOf(const Recorder& g) {
  auto spec = CurrentSpec<ConvSpec>();
  spec.pass = ConvPass::kBackwardW;
  spec.dtype = kBFloat16;
  spec.geometry = g;
  spec.x_layout = LaneLayout(g.input_shape(), kBFloat16, LaneTag::kNChw16c);
  spec.dy_layout = LaneLayout(g.output_shape(), kBFloat16, LaneTag::kNChw16c);
  return spec;
}

Recorder Geometry(const Shape& x, int64_t out, int64_t stride = 1) {
  return ConvRecorder("Conv", x, {1, 1}, {stride, stride}, {0, 0}, out, false, {1, 1}, 1);
}

/// Of 1 x 1 filters, or with a stride along an axis.
Recorder AnyGeometry(Random& random) {
  const Shape x = {random.Int(1, 6), 16 * random.Int(1, 4), random.Int(1, 20), random.Int(1, 20)};
  const int64_t out = 16 * random.Int(1, 4);
  if (random.Coin()) return Geometry(x, out);
  const std::vector<int64_t> dilation = {random.Int(1, 2), random.Int(1, 2)};
  const std::vector<int64_t> stride = {random.Int(1, 3), random.Int(2, 3)};
  std::vector<int64_t> kernel, pads;
  for (size_t axis : {0, 1}) {
    const int64_t size = x[static_cast<int>(axis) + 2];
    kernel.push_back(random.Int(1, std::min<int64_t>(4, (size - 1) / dilation[axis] + 1)));
    for (int side = 0; side < 2; ++side) pads.push_back(random.Coin() ? random.Int(0, 3) : 0);
  }
  return ConvRecorder("Conv", x, kernel, stride, pads, out, false, dilation, 1);
}

TEST_P(PointwiseWeightGradient, IsTheDefinition) {
  const cpu::PairLoops* loops = GetParam() ? cpu::Avx512PairLoops() : &cpu::PlainPairLoops();
  if (!loops) GTEST_SKIP() << "this CPU has no bfloat16 instructions";
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const Recorder g = AnyGeometry(random);
    SCOPED_TRACE(g.ToString());
    const ConvSpec spec = SpecOf(g);
    ASSERT_EQ(cpu::pointwise::RefusesWeightGradient(spec), "");
    const Tensor x = RandomTensor(random, g.input_shape(), kBFloat16),
                 dy = RandomTensor(random, g.output_shape(), kBFloat16);
    const Vector xs = Values(x), dys = Values(dy);
    Sums dw(g.weight_shape().Count());
    ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) { dw.Add(wi, xs[xi] * dys[yi]); });
    const PlanPtr plan = cpu::pointwise::MakeWeightGradient(spec, *loops);
    const Tensor inputs[] = {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, x)};
    const Tensor result = NewOutput(*plan, 0, g.weight_shape(), DefaultDevice(), kBFloat16);
    DefaultDevice()->Exec(spec.op(), plan, inputs, {&result, 1});
    const Vector values = Values(result);
    for (size_t k = 0; k < values.size(); ++k)
      ASSERT_NEAR(values[k], dw.value[k],
                  0x1.01p-8 * std::abs(dw.value[k]) + 0x1p-20 * dw.magnitude[k] + 1e-30)
          << k;
  }
}

TEST(PointwiseWeightGradientRefuses, OtherConvolutions) {
  const auto reason = [](const Recorder& g) {
    return cpu::pointwise::RefusesWeightGradient(SpecOf(g));
  };
  EXPECT_EQ(reason(Geometry({2, 16, 5, 5}, 32)), "");
  EXPECT_EQ(reason(Geometry({2, 16, 5, 5}, 32, 2)), "");
  EXPECT_NE(reason(Geometry({2, 20, 5, 5}, 32)), "");
  EXPECT_NE(reason(Geometry({2, 16, 5, 5}, 20)), "");
  const Shape x = {2, 16, 5, 5};
  EXPECT_NE(reason(ConvRecorder("Conv", x, {3, 3}, {1, 1}, {1, 1}, 32, false, {1, 1}, 1)), "");
  EXPECT_NE(reason(ConvRecorder("Conv", x, {1, 1}, {1, 1}, {0, 0}, 32, true, {1, 1}, 1)), "");
  ConvSpec spec = SpecOf(Geometry({2, 16, 5, 5}, 32));
  spec.x_layout = LaneLayout(spec.geometry.input_shape(), kBFloat16, LaneTag::kNhwc);
  EXPECT_NE(cpu::pointwise::RefusesWeightGradient(spec), "");
}

}  // namespace
}  // namespace singa::test
