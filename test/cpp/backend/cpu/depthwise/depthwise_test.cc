// Depthwise convolutions against the definition in float64, in all passes, layouts and types.

#include "backend/cpu/depthwise/convolution.h"

#include <cstring>

#include "backend/cpu/lane_layouts.h"
#include "model/dispatch/dispatch.h"
#include "model/formula/activation.h"
#include "model/operation/conv/conv_naive.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"

namespace singa::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Runs with vectors of both widths, where the CPU has them.
class Depthwise : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    backend::EnsureRegistered();  // applies oneDNN's limit on the instruction set
    if (cpu::depthwise::BestLanes() < GetParam()) GTEST_SKIP() << "this CPU has none";
  }
};
INSTANTIATE_TEST_SUITE_P(Lanes, Depthwise, testing::Values(8, 16));

Recorder Make(const Shape& x, const std::vector<int64_t>& kernel,
              const std::vector<int64_t>& stride, const std::vector<int64_t>& padding, bool bias,
              int64_t dilation_h = 1, int64_t group_channels = 1) {
  return ConvRecorder("Conv", x, kernel, stride, padding, x[1], bias, {dilation_h, 1},
                      x[1] / group_channels);
}

/// Kernels, strides and paddings of any kind, on images from less than a tile to several.
Recorder AnyGeometry(Random& random, int64_t group_channels = 1) {
  const int64_t across = 3 + 2 * random.Int(0, 2);
  const int64_t down = random.Coin() ? across : random.Int(1, 7);
  const int64_t dilation = random.Int(0, 3) ? 1 : random.Int(2, 3);
  const auto pads = [&](int64_t taps) {
    return random.Coin() ? (taps - 1) / 2 : random.Int(0, taps + 1);
  };
  const std::vector<int64_t> padding = {pads(down), pads(across), pads(down), pads(across)};
  const auto size = [&](int64_t reach, int64_t before, int64_t after) {
    const int64_t least = std::max<int64_t>(reach - before - after, 1);
    return std::max<int64_t>(least, random.Coin() ? random.Int(1, 9) : random.Int(10, 30));
  };
  const int64_t channels =
      group_channels == 1 ? random.Int(2, 70) : group_channels * random.Int(2, 70 / group_channels);
  const Shape x = {random.Int(1, 3), channels,
                   size((down - 1) * dilation + 1, padding[0], padding[2]),
                   size(across, padding[1], padding[3])};
  return Make(x, {down, across}, {random.Int(1, 3), random.Int(1, 2)}, padding, random.Coin(),
              dilation, group_channels);
}

/// Channels-last images of one pixel are row-major, so they tell no layout.
bool HasLayout(const Recorder& g, LaneTag tag) {
  return LaneLayout(g.input_shape(), kFloat32, tag) != nullptr;
}

ConvSpec SpecOf(ConvPass pass, const Recorder& g, DType dtype, LaneTag tag) {
  auto spec = CurrentSpec<ConvSpec>();
  spec.pass = pass;
  spec.dtype = dtype;
  spec.geometry = g;
  if (pass == ConvPass::kBackwardX) spec.geometry.bias = false;
  spec.x_layout = LaneLayout(g.input_shape(), dtype, tag);
  if (pass != ConvPass::kForward) spec.dy_layout = LaneLayout(g.output_shape(), dtype, tag);
  return spec;
}

/// Runs a pass, into memory that is not zero.
template <class Spec>
std::vector<Tensor> RunPass(const Spec& spec, const std::vector<Tensor>& inputs,
                            const std::vector<Shape>& outputs, int64_t lanes) {
  EXPECT_EQ(cpu::depthwise::Refuses(spec, lanes), "");
  const PlanPtr plan = cpu::depthwise::MakePlan(spec, lanes);
  std::vector<Tensor> wanted, results;
  for (const Tensor& input : inputs) wanted.push_back(InPlanLayout(*plan, wanted.size(), input));
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(NewOutput(*plan, i, outputs[i], DefaultDevice(), spec.dtype));
    const Tensor& t = results.back();
    std::memset(t.raw_data(), 0xff, t.layout() ? t.layout()->bytes() : t.bytes());
  }
  DefaultDevice()->Exec(spec.op(), plan, wanted, results);
  return results;
}

/// Expects sums in float32, rounded once to the tensor's type.
void ExpectRounded(const Tensor& result, const Sums& sums, const char* what) {
  const Vector values = Values(result);
  ASSERT_EQ(values.size(), sums.value.size()) << what;
  const double rounding = result.data_type() == kBFloat16 ? 0x1.01p-8 : 0;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], sums.value[i],
                rounding * std::abs(sums.value[i]) + 0x1p-20 * sums.magnitude[i] + 1e-30)
        << what << " " << i;
}

TEST_P(Depthwise, EveryPassIsTheDefinition) {
  Random random(1);
  const ThreadCount scope;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const LaneTag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Coin() ? kFloat32 : kBFloat16;
    const Recorder g = AnyGeometry(random, int64_t{1} << random.Int(0, 3));
    SCOPED_TRACE(g.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)));
    const Tensor x = RandomTensor(random, g.input_shape(), dtype),
                 w = RandomTensor(random, g.weight_shape(), dtype),
                 b = RandomTensor(random, {g.out_channels}, dtype),
                 dy = RandomTensor(random, g.output_shape(), dtype);
    const PassSums sums(g, x, w, b, dy);
    SetNumThreads(static_cast<int>(random.Int(1, 4)));
    const std::vector<Tensor> inputs =
        g.bias ? std::vector<Tensor>{x, w, b} : std::vector<Tensor>{x, w};
    const Tensor result = RunPass(SpecOf(ConvPass::kForward, g, dtype, tag), inputs,
                                  {g.output_shape()}, GetParam())[0];
    if (HasLayout(g, tag)) ExpectIn(result, tag, "y");
    ExpectRounded(result, sums.y, "y");
    const Tensor gradient = RunPass(SpecOf(ConvPass::kBackwardX, g, dtype, tag), {dy, w},
                                    {g.input_shape()}, GetParam())[0];
    if (HasLayout(g, tag)) ExpectIn(gradient, tag, "dx");
    ExpectRounded(gradient, sums.dx, "dx");
    std::vector<Shape> shapes = {g.weight_shape()};
    if (g.bias) shapes.push_back({g.out_channels});
    const std::vector<Tensor> gradients =
        RunPass(SpecOf(ConvPass::kBackwardW, g, dtype, tag), {dy, x}, shapes, GetParam());
    ExpectRounded(gradients[0], sums.dw, "dW");
    if (g.bias) ExpectRounded(gradients[1], sums.db, "db");
  }
}

/// A batch norm in front gives the bits of the same pass on its result.
TEST_P(Depthwise, BehindABatchNorm) {
  const ThreadCount scope;
  Random random(4);
  const Activation activations[] = {
      false, true, {ActivationKind::kClip, -0.5, 0.75}, ActivationKind::kHardSwish};
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const LaneTag tag = kTags[random.Int(0, 2)];
    const Recorder g = AnyGeometry(random);
    const Activation activation = activations[random.Int(0, 3)];
    SCOPED_TRACE(g.ToString() + " tag " + std::to_string(int(tag)) + ActivationSuffix(activation));
    const Shape channels{g.in_channels};
    const Tensor x = RandomTensor(random, g.input_shape()),
                 w = RandomTensor(random, g.weight_shape()),
                 b = RandomTensor(random, {g.out_channels}),
                 dy = RandomTensor(random, g.output_shape()), mean = RandomTensor(random, channels),
                 var = RandomTensor(random, channels, kFloat32, 0.5, 2);
    const Tensor scale = random.Coin() ? RandomTensor(random, channels) : Tensor(),
                 bias = random.Coin() ? RandomTensor(random, channels) : Tensor();
    const BatchNormHandle handle(0.1, x);
    // Other layouts have another implementation, whose activations round differently.
    const PlanPtr plan =
        cpu::depthwise::MakePlan(SpecOf(ConvPass::kForward, g, kFloat32, tag), GetParam());
    const Tensor normalized = BatchNormForwardInference(handle, InPlanLayout(*plan, 0, x), scale,
                                                        bias, mean, var, {}, activation);
    for (const ConvPass pass : {ConvPass::kForward, ConvPass::kBackwardW}) {
      const ConvSpec plain = SpecOf(pass, g, kFloat32, tag);
      const NormConvSpec spec{plain, !scale.empty(), !bias.empty(), handle.epsilon, activation};
      std::vector<Tensor> inputs;
      std::vector<Shape> outputs;
      if (pass == ConvPass::kForward) {
        inputs = {normalized, w};
        if (g.bias) inputs.push_back(b);
        outputs = {g.output_shape()};
      } else {
        inputs = {dy, normalized};
        outputs = {g.weight_shape()};
        if (g.bias) outputs.push_back({g.out_channels});
      }
      SetNumThreads(static_cast<int>(random.Int(1, 4)));
      const std::vector<Tensor> want = RunPass(plain, inputs, outputs, GetParam());
      inputs[spec.x_input()] = x;
      for (const Tensor& t : {mean, var, scale, bias}) inputs.push_back(t);
      SetNumThreads(static_cast<int>(random.Int(1, 4)));
      const std::vector<Tensor> got = RunPass(spec, inputs, outputs, GetParam());
      for (size_t k = 0; k < want.size(); ++k)
        EXPECT_EQ(Values(got[k]), Values(want[k])) << spec.op() << " " << k;
    }
  }
}

/// In inference: an activation that the convolution applies where it reads.
TEST_P(Depthwise, ActivationsInFront) {
  const ThreadCount scope;
  Random random(8);
  const Activation activations[] = {true,
                                    {ActivationKind::kClip, 0, 6},
                                    {ActivationKind::kClip, -1, 0.5},
                                    ActivationKind::kHardSwish};
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const LaneTag tag = kTags[random.Int(0, 2)];
    const Recorder g = AnyGeometry(random);
    const Activation& activation = activations[random.Int(0, 3)];
    const Tensor x = RandomTensor(random, g.input_shape(), kFloat32, -5, 9),
                 w = RandomTensor(random, g.weight_shape()),
                 b = RandomTensor(random, {g.out_channels});
    const Tensor active =
        Unary(formula::FunctionOf(activation.kind), x, activation.low, activation.high);
    const ConvSpec plain = SpecOf(ConvPass::kForward, g, kFloat32, tag);
    SetNumThreads(static_cast<int>(random.Int(1, 4)));
    std::vector<Tensor> inputs = {active, w};
    if (g.bias) inputs.push_back(b);
    const Tensor want = RunPass(plain, inputs, {g.output_shape()}, GetParam())[0];
    inputs[0] = x;
    const Tensor got =
        RunPass(NormConvSpec::Behind(activation, plain), inputs, {g.output_shape()}, GetParam())[0];
    const double error = activation.kind == ActivationKind::kHardSwish ? 1e-5 : 0;
    ExpectNear(got, Values(want), Vector(static_cast<size_t>(want.size()), error), "y");
  }
}

/// What the rows cannot hold, or would fill up with other values than zero.
TEST_P(Depthwise, RefusesBatchNorms) {
  NormConvSpec spec{SpecOf(ConvPass::kForward, Make({1, 16, 5, 5}, {3, 3}, {1, 1}, {1, 1}, false),
                           kFloat32, LaneTag::kNhwc)};
  EXPECT_EQ(cpu::depthwise::Refuses(spec, GetParam()), "");
  spec.front = {ActivationKind::kClip, 1, 2};
  EXPECT_NE(cpu::depthwise::Refuses(spec, GetParam()), "");
  spec.front = {};
  spec.dtype = kBFloat16;
  EXPECT_NE(cpu::depthwise::Refuses(spec, GetParam()), "");
}

/// The options of inference: an addition, in y's memory or separate, an activation, and filters
/// that are kept in the layout of the loops.
TEST_P(Depthwise, ForwardWithAddAndActivation) {
  Random random(2);
  int kept_filters = 0;
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const LaneTag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Coin() ? kFloat32 : kBFloat16;
    const Recorder g = AnyGeometry(random, random.Coin() ? 1 : 8);
    ConvSpec spec = SpecOf(ConvPass::kForward, g, dtype, tag);
    spec.has_add = random.Coin();
    spec.activation = AnyActivation(random);
    spec.constant_weights = random.Coin();
    SCOPED_TRACE(g.ToString() + DTypeName(dtype) + ActivationSuffix(spec.activation));
    std::vector<Tensor> inputs = {RandomTensor(random, g.input_shape(), dtype),
                                  RandomTensor(random, g.weight_shape(), dtype)};
    if (g.bias) inputs.push_back(RandomTensor(random, {g.out_channels}, dtype));
    if (spec.has_add) inputs.push_back(RandomTensor(random, g.output_shape(), dtype, -4, 4));
    const Sums y = ForwardSums(spec, inputs);
    const Tensor result = RunPass(spec, inputs, {g.output_shape()}, GetParam())[0];
    if (HasLayout(g, tag)) ExpectIn(result, tag, "y");
    ExpectRounded(result, y, "y");
    const PlanPtr plan = cpu::depthwise::MakePlan(spec, GetParam());
    const bool kept = plan->input_layout(1) != nullptr;
    EXPECT_TRUE(!kept || (spec.constant_weights && dtype == kFloat32));
    kept_filters += kept;
    if (!spec.has_add) continue;
    ASSERT_EQ(plan->inplace_input(0), static_cast<int>(spec.add_input()));
    std::vector<Tensor> wanted;
    for (const Tensor& input : inputs) wanted.push_back(InPlanLayout(*plan, wanted.size(), input));
    const Tensor own = InPlanLayout(*plan, spec.add_input(), inputs.back().Clone());
    wanted.back() = own;
    DefaultDevice()->Exec(spec.op(), plan, wanted, {&own, 1});
    ExpectRounded(own, y, "y in place");
  }
  EXPECT_GT(kept_filters, 5);
}

/// The same bits for any number of threads, on images that are written past the caches.
TEST_P(Depthwise, ThreadsChangeNothing) {
  const ThreadCount scope;
  Random random(3);
  const Recorder channels = Make({2, 64, 183, 181}, {3, 3}, {1, 1}, {1, 1}, true),
                 groups = Make({2, 160, 39, 28}, {3, 3}, {1, 1}, {1, 1}, true, 1, 8);
  for (const LaneTag tag : {LaneTag::kNhwc, LaneTag::kNChw16c})
    for (const auto& [g, dtype] : {std::pair(channels, kFloat32), std::pair(channels, kBFloat16),
                                   std::pair(groups, kFloat32)}) {
      const Tensor x = RandomTensor(random, g.input_shape(), dtype),
                   w = RandomTensor(random, g.weight_shape(), dtype),
                   b = RandomTensor(random, {g.out_channels}, dtype),
                   dy = RandomTensor(random, g.output_shape(), dtype);
      std::vector<std::vector<Tensor>> results;
      for (const int threads : {1, 2, 5}) {
        SetNumThreads(threads);
        results.push_back(RunPass(SpecOf(ConvPass::kForward, g, dtype, tag), {x, w, b},
                                  {g.output_shape()}, GetParam()));
        const auto gradients = RunPass(SpecOf(ConvPass::kBackwardW, g, dtype, tag), {dy, x},
                                       {g.weight_shape(), {g.out_channels}}, GetParam());
        results.back().insert(results.back().end(), gradients.begin(), gradients.end());
        results.back().push_back(RunPass(SpecOf(ConvPass::kBackwardX, g, dtype, tag), {dy, w},
                                         {g.input_shape()}, GetParam())[0]);
        for (size_t i = 0; i < results[0].size(); ++i) {
          const Tensor &got = results.back()[i], &want = results[0][i];
          const size_t bytes = got.layout() ? got.layout()->bytes() : got.bytes();
          EXPECT_EQ(std::memcmp(got.raw_data(), want.raw_data(), bytes), 0)
              << "result " << i << ", " << threads << " threads";
        }
      }
    }
}

/// NaN and infinity reach the results that read them, and no other.
TEST_P(Depthwise, NumbersThatAreNoneStayWhereTheyAreRead) {
  for (const LaneTag tag : kTags)
    for (const auto& [channels, group, dtype] : std::vector<std::tuple<int64_t, int64_t, DType>>{
             {19, 1, kFloat32}, {19, 1, kBFloat16}, {24, 8, kFloat32}}) {
      const Recorder g = Make({1, channels, 9, 11}, {3, 3}, {1, 1}, {1, 1}, false, 1, group);
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " tag " + std::to_string(int(tag)));
      Vector values(static_cast<size_t>(g.input_shape().Count()), 1);
      const auto at = [](int64_t channel, int64_t h, int64_t w) {
        return static_cast<size_t>((channel * 9 + h) * 11 + w);
      };
      values[at(3, 4, 5)] = kNaN;
      values[at(18, 0, 10)] = kInfinity;
      const Tensor x = FromValues(g.input_shape(), values, dtype);
      const Tensor w = Full(g.weight_shape(), 1, nullptr, dtype);
      const auto reads = [&, each = group](int64_t result, int64_t channel) {
        return result / each == channel / each;
      };
      const auto expect = [&, each = group](const Vector& got, const char* what) {
        for (int64_t channel = 0; channel < g.out_channels; ++channel)
          for (int64_t h = 0; h < 9; ++h)
            for (int64_t c = 0; c < 11; ++c) {
              const double v = got[at(channel, h, c)];
              const bool nan = reads(channel, 3) && std::abs(h - 4) <= 1 && std::abs(c - 5) <= 1;
              const bool infinite = reads(channel, 18) && h <= 1 && c >= 9;
              const int64_t rows = h == 0 || h == 8 ? 2 : 3, columns = c == 0 || c == 10 ? 2 : 3;
              EXPECT_TRUE(nan        ? std::isnan(v)
                          : infinite ? v == kInf
                                     : v == static_cast<double>(rows * columns * each))
                  << what << " " << channel << " " << h << " " << c << ": " << v;
            }
      };
      expect(Values(RunPass(SpecOf(ConvPass::kForward, g, dtype, tag), {x, w}, {g.output_shape()},
                            GetParam())[0]),
             "y");
      expect(Values(RunPass(SpecOf(ConvPass::kBackwardX, g, dtype, tag), {x, w}, {g.input_shape()},
                            GetParam())[0]),
             "dx");
      const Tensor ones = Full(g.output_shape(), 1, nullptr, dtype);
      const Vector dw = Values(RunPass(SpecOf(ConvPass::kBackwardW, g, dtype, tag), {ones, x},
                                       {g.weight_shape()}, GetParam())[0]);
      for (size_t i = 0; i < dw.size(); ++i) {
        const auto filter = static_cast<int64_t>(i / 9), tap = static_cast<int64_t>(i % 9);
        const int64_t result = filter / group, channel = result / group * group + filter % group;
        // The corner is read by the taps that reach up or right of the results that see it.
        const bool infinite = channel == 18 && tap / 3 <= 1 && tap % 3 >= 1;
        EXPECT_TRUE(channel == 3 ? std::isnan(dw[i])
                    : infinite   ? dw[i] == kInf
                                 : std::isfinite(dw[i]))
            << i << ": " << dw[i];
      }
    }
}

TEST(Depthwise, RefusesWhatItHasNoLoopsFor) {
  const auto refuses = [](const Recorder& g, bool plain = false) {
    ConvSpec spec = SpecOf(ConvPass::kForward, g, kFloat32, LaneTag::kNhwc);
    spec.plain = plain;
    return !cpu::depthwise::Refuses(spec, 16).empty();
  };
  const Shape x = {2, 8, 9, 9};
  EXPECT_FALSE(refuses(Make(x, {3, 3}, {1, 1}, {1, 1}, false)));
  EXPECT_TRUE(refuses(Make(x, {3, 3}, {1, 1}, {1, 1}, false), true));
  EXPECT_TRUE(refuses(Make(x, {3, 4}, {1, 1}, {1, 1}, false)));
  EXPECT_TRUE(refuses(Make(x, {3, 3}, {1, 3}, {1, 1}, false)));
  EXPECT_TRUE(refuses(ConvRecorder("Conv", x, {3, 3}, {1, 1}, {1, 1}, 8, false, {1, 2}, 8)));
  EXPECT_TRUE(refuses(ConvRecorder("Conv", x, {3, 3}, {1, 1}, {1, 1}, 16, false, {1, 1}, 8)));
  EXPECT_FALSE(refuses(ConvRecorder("Conv", x, {3, 3}, {1, 1}, {1, 1}, 8, false, {1, 1}, 4)));
  EXPECT_TRUE(refuses(ConvRecorder("Conv", x, {3, 3}, {1, 1}, {1, 1}, 8, false, {1, 1}, 1)));
  const Shape wide = {2, 24, 9, 9};
  EXPECT_FALSE(refuses(ConvRecorder("Conv", wide, {3, 3}, {1, 1}, {1, 1}, 24, false, {1, 1}, 3)));
  EXPECT_TRUE(refuses(ConvRecorder("Conv", wide, {3, 3}, {1, 1}, {1, 1}, 24, false, {1, 1}, 8)));
  EXPECT_TRUE(refuses(ConvRecorder("Conv", wide, {3, 3}, {1, 1}, {1, 1}, 24, false, {1, 1}, 2)));
  EXPECT_TRUE(refuses(ConvRecorder("Conv", wide, {3, 3}, {1, 1}, {1, 1}, 48, false, {1, 1}, 12)));
}

/// Images stay in their layout from one pass to the next.
TEST(Depthwise, IsChosenAndFollowsTheLayout) {
  backend::EnsureRegistered();
  if (cpu::depthwise::BestLanes() == 0) GTEST_SKIP() << "this CPU has none";
  Random random(5);
  for (const LaneTag tag : {LaneTag::kNhwc, LaneTag::kNChw16c, LaneTag::kNChw8c})
    for (const int64_t groups : {24, 3}) {
      const Tensor x = In(RandomTensor(random, {2, 24, 14, 14}), tag);
      const Tensor w = RandomTensor(random, {24, 24 / groups, 3, 3});
      const ConvHandle handle(x, {3, 3}, {2, 2}, {1, 1}, 24, 24, false, groups);
      const bool need_w = groups == 24 || cpu::depthwise::BestLanes() == 16;  // others are oneDNN's
      const uint64_t reorders = Reorders();
      const Tensor y = ConvForward(x, w, {}, handle);
      const Tensor dx = ConvBackward(y, x, w, handle, true, need_w, false)[0];
      EXPECT_EQ(Reorders(), reorders);
      ExpectIn(y, tag, "y");
      ExpectIn(dx, tag, "dx");
      ConvSpec spec = SpecOf(ConvPass::kForward, handle.recorder, kFloat32, tag);
      EXPECT_EQ(FindPlan(*DefaultDevice(), spec)->implementation(), std::string("depthwise"));
    }
}

}  // namespace
}  // namespace singa::test
