// 1 x 1 convolutions of inference against the definition in float64.

#include <cstring>

#include "backend/cpu/lane_layouts.h"
#include "backend/cpu/pointwise/convolution.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/activation.h"
#include "model/operation/conv/conv_naive.h"

namespace singa::test {
namespace {

using cpu::pointwise::Loops;

/// Runs with vectors of both widths, where the CPU has them.
class Pointwise : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    backend::EnsureRegistered();  // applies oneDNN's limit on the instruction set
    loops_ = cpu::pointwise::BestLoops();
    if (loops_.lanes < GetParam()) GTEST_SKIP() << "this CPU has none";
#if defined(__x86_64__)
    if (GetParam() == 8) loops_ = cpu::pointwise::LoopsAvx2();
#endif
  }
  LaneTag blocked() const { return GetParam() == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c; }

  Loops loops_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, Pointwise, testing::Values(8, 16));

Recorder AnyGeometry(Random& random) {
  const auto size = [&] { return random.Coin() ? random.Int(1, 4) : random.Int(5, 20); };
  const auto channels = [&] { return random.Coin() ? 16 * random.Int(1, 6) : random.Int(1, 70); };
  const int axes = random.Int(0, 3) ? 2 : 1;
  Shape x = {random.Int(0, 3) ? 1 : random.Int(2, 40), channels(), size()};
  if (axes == 2) x.push_back(size());
  const std::vector<int64_t> ones(static_cast<size_t>(axes), 1);
  const auto strides = random.Int(0, 2) ? ones : Numbers(random, axes, 1, 3);
  return ConvRecorder("Conv", x, ones, strides, std::vector<int64_t>(ones.size(), 0), channels(),
                      random.Coin(), ones, 1);
}

ConvSpec SpecOf(const Recorder& g, LaneTag tag) {
  auto spec = CurrentSpec<ConvSpec>();
  spec.geometry = g;
  spec.constant_weights = true;
  spec.x_layout = LaneLayout(g.input_shape(), kFloat32, tag);
  return spec;
}

TEST_P(Pointwise, IsTheDefinition) {
  const ThreadCount scope;
  Random random(1);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    const Recorder g = AnyGeometry(random);
    const LaneTag tag = random.Coin() ? LaneTag::kNhwc : blocked();
    ConvSpec spec = SpecOf(g, tag);
    if (!spec.x_layout && g.pixels() > 1) continue;  // a single channel tells no layout
    spec.has_add = random.Coin();
    spec.activation = AnyActivation(random);
    SetNumThreads(static_cast<int>(random.Int(1, 4)));
    spec.threads = NumThreads();
    SCOPED_TRACE(g.ToString() + " tag " + std::to_string(int(tag)) +
                 ActivationSuffix(spec.activation) + (spec.has_add ? " add" : ""));
    std::vector<Tensor> inputs = {RandomTensor(random, g.input_shape()),
                                  RandomTensor(random, g.weight_shape())};
    if (g.bias) inputs.push_back(RandomTensor(random, {g.out_channels}));
    if (spec.has_add) inputs.push_back(RandomTensor(random, g.output_shape(), kFloat32, -4, 4));
    const Sums y = ForwardSums(spec, inputs);

    ASSERT_EQ(cpu::pointwise::Refuses(spec, loops_), "");
    const PlanPtr plan = cpu::pointwise::MakePlan(spec, loops_);
    std::vector<Tensor> wanted;
    for (const Tensor& input : inputs) wanted.push_back(InPlanLayout(*plan, wanted.size(), input));
    const int taken = plan->inplace_input(0);
    ASSERT_EQ(taken, spec.has_add ? static_cast<int>(spec.add_input()) : -1);
    Tensor result = NewOutput(*plan, 0, g.output_shape(), DefaultDevice(), kFloat32);
    std::memset(result.raw_data(), 0xff,
                result.layout() ? result.layout()->bytes() : result.bytes());
    if (spec.has_add && random.Coin()) {
      result = InPlanLayout(*plan, spec.add_input(), inputs.back().Clone());
      wanted.back() = result;
    }
    DefaultDevice()->Exec(spec.op(), plan, wanted, {&result, 1});
    for (const LaneTag each : {LaneTag::kNhwc, blocked()})
      if (result.layout() &&
          SameLayout(result.layout(), LaneLayout(g.output_shape(), kFloat32, each)))
        ExpectIn(result, each, "y");
    ExpectSums(result, g.output_shape(), y, "y");
  }
}

/// The same bits for any number of threads, in both orders of the loops.
TEST_P(Pointwise, ThreadsChangeNothing) {
  const ThreadCount scope;
  Random random(2);
  for (const Shape& x_shape : {Shape{2, 64, 28, 28}, Shape{1, 96, 7, 7}, Shape{1, 320, 1, 1}}) {
    const Recorder g = ConvRecorder("Conv", x_shape, {1, 1}, {1, 1}, {0, 0}, 240, true, {1, 1}, 1);
    const Tensor x = RandomTensor(random, x_shape), w = RandomTensor(random, g.weight_shape()),
                 b = RandomTensor(random, {240});
    std::vector<Vector> results;
    for (const int threads : {1, 2, 5}) {
      SetNumThreads(threads);
      const bool is_pixel = x_shape.Count(2, 4) == 1;
      ConvSpec spec = SpecOf(g, is_pixel ? LaneTag::kNhwc : blocked());
      const PlanPtr plan = cpu::pointwise::MakePlan(spec, loops_);
      const Tensor y = NewOutput(*plan, 0, g.output_shape(), DefaultDevice(), kFloat32);
      DefaultDevice()->Exec(
          spec.op(), plan,
          std::vector<Tensor>{InPlanLayout(*plan, 0, x), InPlanLayout(*plan, 1, w), b}, {&y, 1});
      results.push_back(Values(y));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

/// NaN stays in its pixel, and reaches all of its results, but no lane without a channel.
TEST_P(Pointwise, KeepsNan) {
  Random random(3);
  const Recorder g =
      ConvRecorder("Conv", {1, 20, 5, 6}, {1, 1}, {1, 1}, {0, 0}, 30, true, {1, 1}, 1);
  for (const LaneTag tag : {LaneTag::kNhwc, blocked()}) {
    for (const Activation& f :
         {Activation(true), Activation(ActivationKind::kClip, 0, 6),
          Activation(ActivationKind::kHardSwish), Activation(ActivationKind::kSilu)}) {
      ConvSpec spec = SpecOf(g, tag);
      spec.activation = f;
      Vector values = Values(RandomTensor(random, g.input_shape()));
      values[3 * 30 + 17] = kNan;
      const PlanPtr plan = cpu::pointwise::MakePlan(spec, loops_);
      const Tensor y = NewOutput(*plan, 0, g.output_shape(), DefaultDevice(), kFloat32);
      const std::vector<Tensor> inputs = {
          InPlanLayout(*plan, 0, FromValues(g.input_shape(), values)),
          InPlanLayout(*plan, 1, RandomTensor(random, g.weight_shape())),
          RandomTensor(random, {30})};
      DefaultDevice()->Exec(spec.op(), plan, inputs, {&y, 1});
      ExpectIn(y, tag, "y");
      const Vector got = Values(y);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(std::isnan(got[i]), i % 30 == 17) << i << ActivationSuffix(f);
    }
  }
}

/// Whether filters come from memory matters less, the more pixels they serve.
TEST(Pointwise, PaysForFewPixels) {
  const auto pays = [](int64_t images, int64_t size, int64_t stride, int64_t lanes) {
    ConvSpec spec;
    spec.geometry = ConvRecorder("Conv", {images, 64, size * stride, size * stride}, {1, 1},
                                 {stride, stride}, {0, 0}, 256, true, {1, 1}, 1);
    return cpu::pointwise::Pays(spec, lanes);
  };
  for (const int64_t size : {7, 14, 28}) EXPECT_TRUE(pays(1, size, 1, 16)) << size;
  EXPECT_TRUE(pays(1, 28, 2, 16));
  EXPECT_FALSE(pays(1, 56, 1, 16));
  EXPECT_TRUE(pays(32, 1, 1, 16));
  EXPECT_FALSE(pays(32, 7, 1, 16));
#if defined(__x86_64__)
  EXPECT_TRUE(pays(1, 7, 1, 8));
  EXPECT_FALSE(pays(1, 14, 1, 8));
#endif
}

/// Where they are likely to be slower, they can be measured and asked for.
TEST(Pointwise, AreACandidateForAnyNumberOfPixels) {
  const Kernel& kernel = *FindKernel<ConvSpec>("pointwise");
  if (cpu::pointwise::BestLoops().lanes == 0) GTEST_SKIP() << "this CPU has none";
  for (const int64_t size : {7, 56}) {
    const ConvSpec spec = SpecOf(
        ConvRecorder("Conv", {1, 64, size, size}, {1, 1}, {1, 1}, {0, 0}, 32, false, {1, 1}, 1),
        LaneTag::kNhwc);
    const std::vector<Candidate> candidates = kernel.Candidates(spec);
    ASSERT_EQ(candidates.size(), 1u);
    EXPECT_EQ(candidates[0].name, "pointwise " + LayoutName(LaneLayout(spec.geometry.input_shape(),
                                                                       kFloat32, LaneTag::kNhwc)));
    EXPECT_EQ(candidates[0].make()->Describe(), "pointwise");
    const PlanOrReason made = kernel.Make(spec);
    EXPECT_EQ(static_cast<bool>(made), size == 7);
    EXPECT_EQ(made.reason(), candidates[0].slower);
    EXPECT_EQ(made.reason().empty(), size == 7);
  }
}

TEST_P(Pointwise, Refuses) {
  const auto refuses = [&](const auto& change, const char* why) {
    ConvSpec spec =
        SpecOf(ConvRecorder("Conv", {1, 16, 6, 6}, {1, 1}, {1, 1}, {0, 0}, 32, true, {1, 1}, 1),
               LaneTag::kNhwc);
    change(&spec);
    const std::string reason = cpu::pointwise::Refuses(spec, loops_);
    EXPECT_NE(reason.find(why), std::string::npos) << reason;
  };
  refuses([](ConvSpec* spec) { spec->constant_weights = false; }, "for inference");
  refuses([](ConvSpec* spec) { spec->pass = ConvPass::kBackwardX; }, "for inference");
  refuses([](ConvSpec* spec) { spec->dtype = kBFloat16; }, "for float32");
  refuses([](ConvSpec* spec) { spec->plain = true; }, "blocked images");
  refuses([](ConvSpec* spec) { spec->x_layout = nullptr; }, "neither in blocks");
  refuses(
      [](ConvSpec* spec) {
        spec->geometry =
            ConvRecorder("Conv", {1, 16, 6, 6}, {1, 1}, {1, 1}, {1, 0}, 32, true, {1, 1}, 1);
      },
      "without padding");
  refuses(
      [](ConvSpec* spec) {
        spec->geometry =
            ConvRecorder("Conv", {1, 16, 6, 6}, {3, 1}, {1, 1}, {0, 0}, 32, true, {1, 1}, 1);
      },
      "not 1 x 1");
}

}  // namespace
}  // namespace singa::test
