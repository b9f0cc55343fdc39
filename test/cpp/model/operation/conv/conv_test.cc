#include "singa/operation/conv.h"

#include "conv_naive.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/spec.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::test {
namespace {

using Ints = std::vector<int64_t>;

Recorder Conv(const Shape& input, const Ints& kernel, const Ints& stride, const Ints& padding,
              int64_t out, bool bias, const Ints& dilation = {1, 1}, int64_t group = 1) {
  return ConvRecorder("Conv", input, kernel, stride, padding, out, bias, dilation, group);
}

using ConvTest = EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, ConvTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return std::string(PreferenceName(info.param)); });

TEST_P(ConvTest, OneHandleServesEveryInputSize) {
  Random random(5);
  const ConvHandle handle(RandomTensor(random, {8, 3, 16, 16}), {3, 3}, {1, 1}, {1, 1}, 3, 20);
  const Tensor w = RandomTensor(random, {20, 3, 3, 3});
  for (const Shape& shape : {Shape{8, 3, 16, 16}, Shape{1, 3, 9, 30}, Shape{5, 3, 16, 16}}) {
    const Tensor x = RandomTensor(random, shape);
    const Recorder g = WithInput("test", handle.recorder, shape);
    const Tensor dy = RandomTensor(random, g.output_shape());
    const PassSums sums(g, x, w, Tensor(), dy);
    ExpectSums(ConvForward(x, w, Tensor(), handle), g.output_shape(), sums.y, "y");
    ExpectSums(ConvBackwardX(dy, w, handle, shape), shape, sums.dx, "dx");
    ExpectSums(ConvBackwardW(dy, x, handle), g.weight_shape(), sums.dw, "dW");
  }
}

TEST_P(ConvTest, PlansAreReusedWhenBatchSizesAlternate) {
  const ConvHandle handle(Tensor({8, 4, 10, 10}), {3, 3}, {1, 1}, {1, 1}, 4, 8);
  const Tensor w = Full({8, 4, 3, 3}, 0.5), b = Full({8}, 1);
  auto round = [&] {
    for (int64_t batch : {8, 3, 16}) {
      const Tensor x = Full({batch, 4, 10, 10}, 1), dy = Full({batch, 8, 10, 10}, 1);
      ConvForward(x, w, b, handle);
      ConvBackward(dy, x, w, handle, true, true, true);
    }
  };
  round();
  const uint64_t misses = GetPlanCacheStats().misses;
  round();
  round();
  EXPECT_EQ(GetPlanCacheStats().misses, misses);
}

/// The end of a residual block, in the layout that convolutions pass on.
TEST_P(ConvTest, AddAndReluKeepLayouts) {
  Random random(7);
  for (const int64_t channels : {32, 20, 3}) {
    const Recorder g = Conv({2, channels, 9, 8}, {3, 3}, {1, 1}, {1, 1}, channels, true);
    const ConvHandle handle(g);
    const Tensor w = RandomTensor(random, g.weight_shape()), b = RandomTensor(random, {channels});
    const Tensor x = ConvForward(RandomTensor(random, g.input_shape()), w, b, handle, {}, true);
    const Vector before = Values(x);
    EXPECT_GE(*std::min_element(before.begin(), before.end()), 0);
    ConvSpec spec;
    spec.geometry = g;
    spec.has_add = true;
    spec.activation = true;
    const Tensor y = ConvForward(x, w, b, handle, x, true);
    ExpectSums(y, x.shape(), ForwardSums(spec, {x, w, b, x}), "y");
    EXPECT_TRUE(SameLayout(y.layout(), x.layout())) << LayoutName(y.layout());
    EXPECT_EQ(Values(x), before);  // eager execution does not reuse its memory
  }
}

/// If a plan allows it, y reuses the memory of `add`, as in a recorded step. Then any activation
/// follows.
TEST_P(ConvTest, AddsInPlaceAndActivates) {
  Random random(8);
  for (int i = 0; i < 24; ++i) {
    const DType dtype = i % 4 == 0 ? kFloat64 : i % 4 == 1 ? kBFloat16 : kFloat32;
    auto spec = CurrentSpec<ConvSpec>();
    spec.dtype = dtype;
    spec.geometry = Conv({2, 32, 6, 7}, {1, 1}, {1, 1}, {0, 0}, 48, random.Coin());
    spec.has_add = true;
    spec.activation = AnyActivation(random);
    const Recorder& g = spec.geometry;
    const DevicePtr device = DefaultDevice();
    const PlanPtr plan = FindPlan(*device, spec);
    std::vector<Tensor> inputs(spec.add_input() + 1);
    inputs[0] = RandomTensor(random, g.input_shape(), dtype);
    inputs[1] = RandomTensor(random, g.weight_shape(), dtype);
    if (g.bias) inputs[2] = RandomTensor(random, {48}, dtype);
    inputs.back() = RandomTensor(random, g.output_shape(), dtype);
    const Sums sums = ForwardSums(spec, inputs);
    for (size_t k = 0; k < inputs.size(); ++k) inputs[k] = InPlanLayout(*plan, k, inputs[k]);
    const int taken = plan->inplace_input(0);
    EXPECT_TRUE(taken == -1 || taken == static_cast<int>(spec.add_input())) << plan->Describe();
    const Tensor y = taken < 0 ? NewOutput(*plan, 0, g.output_shape(), device, dtype)
                               : inputs[static_cast<size_t>(taken)];
    singa::Run(spec, device, plan, inputs, {{y}});
    ExpectSums(y, g.output_shape(), sums, "y");
  }
}

/// The images of a batch that does not fit into the caches are computed a few at a time.
TEST_P(ConvTest, ReluOfMoreThanCachesHold) {
  Random random(9);
  const Recorder g = Conv({12, 8, 56, 50}, {1, 1}, {1, 1}, {0, 0}, 70, true);
  const ConvHandle handle(g);
  for (const DType dtype : {kFloat32, kBFloat16}) {
    Vector values = Values(RandomTensor(random, g.input_shape(), dtype));
    values[7 * values.size() / 12] = kNan;  // in one pixel
    const Tensor x = FromValues(g.input_shape(), values, dtype);
    const Tensor w = RandomTensor(random, g.weight_shape(), dtype);
    const Tensor b = RandomTensor(random, {70}, dtype);
    const Tensor z = RandomTensor(random, g.output_shape(), dtype);
    for (const Tensor& add : {Tensor(), z}) {
      const Vector got = Values(ConvForward(x, w, b, handle, add, true));
      const Vector sums = Values(ConvForward(x, w, b, handle, add));
      int64_t nans = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        nans += std::isnan(got[i]);
        if (std::isnan(sums[i]))
          ASSERT_TRUE(std::isnan(got[i])) << i;
        else
          ASSERT_NEAR(got[i], std::max(sums[i], 0.0), 0x1p-7 * std::abs(sums[i]) + 0x1p-20) << i;
      }
      EXPECT_EQ(nans, 70);
    }
  }
}

TEST_P(ConvTest, EmptyBatch) {
  const ConvHandle handle(Tensor({2, 3, 8, 8}), {3, 3}, {1, 1}, {0, 0}, 3, 5);
  const Tensor x({0, 3, 8, 8}), w = Full({5, 3, 3, 3}, 1), b = Full({5}, 1), dy({0, 5, 6, 6});
  EXPECT_EQ(ConvForward(x, w, b, handle).shape(), Shape({0, 5, 6, 6}));
  EXPECT_EQ(ConvForward(x, w, b, handle, dy, true).shape(), Shape({0, 5, 6, 6}));
  const std::vector<Tensor> gradients = ConvBackward(dy, x, w, handle, true, true, true);
  EXPECT_EQ(gradients[0].shape(), Shape({0, 3, 8, 8}));
  EXPECT_EQ(Values(gradients[1]), Vector(5 * 27, 0.0));
  EXPECT_EQ(Values(gradients[2]), Vector(5, 0.0));
  EXPECT_EQ(ConvBackwardX(dy, w, handle).shape(), Shape({0, 3, 8, 8}));
  EXPECT_EQ(Values(ConvBackwardB(dy, handle)), Vector(5, 0.0));
}

TEST(ConvReferenceTest, SameBitsForAnyNumberOfThreads) {
  Random random(6);
  const Recorder g = Conv({3, 24, 20, 20}, {3, 3}, {1, 1}, {1, 1}, 48, true, {1, 1}, 2);
  const ConvHandle handle(g, size_t{1} << 30, "reference");
  const Tensor x = RandomTensor(random, g.input_shape()),
               w = RandomTensor(random, g.weight_shape());
  const Tensor b = RandomTensor(random, {48}), dy = RandomTensor(random, g.output_shape());
  SameOnThreads({2, 3, 7}, [&] {
    return std::pair(Values(ConvForward(x, w, b, handle)),
                     ValuesOf(ConvBackward(dy, x, w, handle, true, true, true)));
  });
}

TEST_P(ConvTest, PreferenceOfTheHandle) {
  const Tensor x({1, 2, 5, 5});
  EXPECT_EQ(
      ConvHandle(x, {3, 3}, {1, 1}, {0, 0}, 2, 4, true, 1, {1, 1}, 1 << 20, "reference").preference,
      Preference::kReference);
  EXPECT_EQ(ConvHandle(x, {3, 3}, {1, 1}, {0, 0}, 2, 4).preference, GetParam());
  EXPECT_ERROR(std::invalid_argument, "'best'",
               ConvHandle(x, {3, 3}, {1, 1}, {0, 0}, 2, 4, true, 1, {1, 1}, 1 << 20, "best"));
}

}  // namespace
}  // namespace singa::test
