// Depthwise convolutions of images that are made where they are read, against the definition of
// both convolutions in float64.

#include <cstring>

#include "backend/cpu/depthwise/convolution.h"
#include "backend/cpu/lane_layouts.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/conv_naive.h"

namespace singa::test {
namespace {

/// Runs with vectors of both widths, where the CPU has them.
class Expanded : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    backend::EnsureRegistered();  // applies oneDNN's limit on the instruction set
    if (cpu::depthwise::BestLanes() < GetParam()) GTEST_SKIP() << "this CPU has none";
  }
  LaneTag blocked() const { return GetParam() == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c; }
};
INSTANTIATE_TEST_SUITE_P(Lanes, Expanded, testing::Values(8, 16));

/// Of some channels of x, expanded to more or fewer.
ExpandConvSpec AnySpec(Random& random, LaneTag blocked) {
  const auto channels = [&] { return random.Coin() ? 16 * random.Int(1, 5) : random.Int(2, 70); };
  const int64_t across = 3 + 2 * random.Int(0, 2), down = random.Coin() ? across : random.Int(1, 7);
  const auto pads = [&](int64_t taps) {
    return random.Coin() ? (taps - 1) / 2 : random.Int(0, taps + 1);
  };
  const bool signal = random.Int(0, 4) == 0;
  std::vector<int64_t> padding = {pads(down), pads(across), pads(down), pads(across)};
  const auto size = [&](int64_t taps) {
    return random.Coin() ? random.Int(taps, 9) : random.Int(10, 34);
  };
  const int64_t expanded = channels();
  Shape z = {random.Int(1, 3), expanded, size(down), size(across)};
  std::vector<int64_t> kernel = {down, across}, stride = {random.Int(1, 3), random.Int(1, 2)},
                       dilation = {1, 1};
  if (signal) {
    z = {z[0], z[1], z[3]};
    kernel = {across}, stride = {stride[1]}, dilation = {1}, padding = {padding[1], padding[3]};
  }
  ExpandConvSpec spec;
  static_cast<ConvSpec&>(spec) = CurrentSpec<ConvSpec>();
  spec.geometry =
      ConvRecorder("Conv", z, kernel, stride, padding, expanded, random.Coin(), dilation, expanded);
  spec.constant_weights = true;
  spec.channels = channels();
  spec.has_shift = random.Coin();
  spec.front = AnyActivation(random);
  spec.activation = AnyActivation(random);
  spec.x_layout = LaneLayout(spec.x_shape(), kFloat32, random.Coin() ? LaneTag::kNhwc : blocked);
  return spec;
}

std::vector<Tensor> DrawInputs(Random& random, const ExpandConvSpec& spec) {
  std::vector<Tensor> inputs = {RandomTensor(random, spec.x_shape()),
                                RandomTensor(random, spec.geometry.weight_shape())};
  if (spec.geometry.bias) inputs.push_back(RandomTensor(random, {spec.geometry.out_channels}));
  inputs.push_back(RandomTensor(random, spec.expand_shape()));
  if (spec.has_shift) inputs.push_back(RandomTensor(random, {spec.geometry.in_channels}));
  return inputs;
}

/// Sums of the filters' products, and the bias, with f of them.
Sums Convolved(const ConvSpec& spec, const Sums& x, const Tensor& w, const Tensor& b) {
  const Recorder& g = spec.geometry;
  Sums y(g.output_shape().Count());
  const Vector ws = Values(w), bs = b.empty() ? Vector() : Values(b);
  ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) {
    y.value[yi] += x.value[xi] * ws[wi];
    y.magnitude[yi] += x.magnitude[xi] * std::abs(ws[wi]);
    y.length[yi] += 1;
  });
  for (size_t at = 0; at < y.value.size() && !bs.empty(); ++at)
    y.Add(static_cast<int64_t>(at), bs[at / static_cast<size_t>(g.col_width) % bs.size()]);
  Activate(spec.activation, &y);
  return y;
}

Sums Definition(const ExpandConvSpec& spec, const std::vector<Tensor>& inputs) {
  const Vector xs = Values(inputs[0]);
  Sums x(static_cast<int64_t>(xs.size()));
  for (size_t i = 0; i < xs.size(); ++i) x.Add(static_cast<int64_t>(i), xs[i]);
  const size_t at = spec.expand_input();
  const Sums z = Convolved(spec.Inner(), x, inputs[at], spec.has_shift ? inputs[at + 1] : Tensor());
  Sums y = Convolved(spec, z, inputs[1], spec.geometry.bias ? inputs[2] : Tensor());
  for (double& length : y.length) length += static_cast<double>(spec.channels + 1);
  return y;
}

/// Into memory that is not zero.
Tensor RunPlan(const PlanPtr& plan, const ExpandConvSpec& spec, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> wanted;
  for (const Tensor& input : inputs) wanted.push_back(InPlanLayout(*plan, wanted.size(), input));
  const Tensor y = NewOutput(*plan, 0, spec.geometry.output_shape(), DefaultDevice(), kFloat32);
  std::memset(y.raw_data(), 0xff, y.layout() ? y.layout()->bytes() : y.bytes());
  DefaultDevice()->Exec(spec.op(), plan, wanted, {&y, 1});
  return y;
}

TEST_P(Expanded, IsTheDefinition) {
  const ThreadCount scope;
  Random random(1);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    SetNumThreads(static_cast<int>(random.Int(1, 4)));
    const ExpandConvSpec spec = AnySpec(random, blocked());
    if (!spec.x_layout) continue;  // a single channel tells no layout
    SCOPED_TRACE(spec.geometry.ToString() + " of " + std::to_string(spec.channels) + " in " +
                 LayoutName(spec.x_layout) + ActivationSuffix(spec.front) +
                 ActivationSuffix(spec.activation));
    const std::vector<Tensor> inputs = DrawInputs(random, spec);
    const Sums y = Definition(spec, inputs);
    ASSERT_EQ(cpu::depthwise::Refuses(spec, GetParam()), "");
    const Tensor result = RunPlan(cpu::depthwise::MakePlan(spec, GetParam()), spec, inputs);
    for (const LaneTag each : {LaneTag::kNhwc, blocked()})
      if (result.layout() &&
          SameLayout(result.layout(), LaneLayout(result.shape(), kFloat32, each)))
        ExpectIn(result, each, "y");
    ExpectSums(result, spec.geometry.output_shape(), y, "y");
  }
}

TEST(ExpandConv, ReferenceIsTheDefinition) {
  Random random(2);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    ExpandConvSpec spec = AnySpec(random, LaneTag::kNhwc);
    spec.x_layout = nullptr;
    const std::vector<Tensor> inputs = DrawInputs(random, spec);
    const PlanPtr plan = FindKernel<ExpandConvSpec>(kReference)->Make(spec).plan();
    ExpectSums(RunPlan(plan, spec, inputs), spec.geometry.output_shape(), Definition(spec, inputs),
               "y");
  }
}

/// What OPCHECK allows follows the magnitudes of all products.
TEST(ExpandConv, MagnitudesAreThoseOfTheDefinition) {
  Random random(3);
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    ExpandConvSpec spec = AnySpec(random, LaneTag::kNhwc);
    spec.x_layout = nullptr;
    const std::vector<Tensor> inputs = DrawInputs(random, spec);
    const Vector got = Values(spec.Magnitudes(inputs)[0]);
    spec.front = spec.activation = {};
    const Vector want = Definition(spec, inputs).magnitude;
    for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(got[at], want[at], 1e-9 * want[at]);
  }
}

/// The same bits for any number of threads, and no NaN from memory that was there before.
TEST_P(Expanded, ThreadsChangeNothing) {
  const ThreadCount scope;
  Random random(4);
  for (const auto& [channels, expanded, size] :
       {std::tuple<int64_t, int64_t, int64_t>{24, 144, 30}, {16, 40, 9}, {64, 384, 14}}) {
    ExpandConvSpec spec;
    spec.geometry = ConvRecorder("Conv", {1, expanded, size, size}, {3, 3}, {2, 2}, {1, 1},
                                 expanded, true, {1, 1}, expanded);
    spec.constant_weights = true;
    spec.channels = channels;
    spec.front = spec.activation = ActivationKind::kSilu;
    spec.x_layout = LaneLayout(spec.x_shape(), kFloat32, blocked());
    const std::vector<Tensor> inputs = DrawInputs(random, spec);
    const auto run = [&](int threads) {
      SetNumThreads(threads);
      spec.threads = threads;
      return Values(RunPlan(cpu::depthwise::MakePlan(spec, GetParam()), spec, inputs));
    };
    const Vector want = run(1);
    for (const int threads : {2, 3, 7}) EXPECT_EQ(run(threads), want) << threads;
  }
}

/// NaN and infinity reach the results that read them. Lanes without a channel stay zero.
TEST_P(Expanded, NumbersThatAreNoneStayWhereTheyAreRead) {
  const int64_t expanded = 4 * GetParam() - 1;
  ExpandConvSpec spec;
  spec.geometry = ConvRecorder("Conv", {2, expanded, 9, 11}, {3, 3}, {1, 1}, {1, 1}, expanded,
                               false, {1, 1}, expanded);
  spec.constant_weights = true;
  spec.channels = GetParam();
  spec.x_layout = LaneLayout(spec.x_shape(), kFloat32, blocked());
  Vector values(static_cast<size_t>(spec.x_shape().Count()), 1);
  values[static_cast<size_t>((3 * 9 + 4) * 11 + 5)] = kInf;
  const Tensor y = RunPlan(cpu::depthwise::MakePlan(spec, GetParam()), spec,
                           {FromValues(spec.x_shape(), values, kFloat32),
                            Full(spec.geometry.weight_shape(), 1), Full(spec.expand_shape(), 1)});
  ExpectIn(y, blocked(), "y");  // with zeros in the last lane
  const Vector got = Values(y);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t image = at / (expanded * 99), h = at / 11 % 9, w = at % 11;
    const bool infinite = image == 0 && std::abs(h - 4) <= 1 && std::abs(w - 5) <= 1;
    ASSERT_EQ(std::isinf(got[i]), infinite) << i;
    ASSERT_FALSE(std::isnan(got[i])) << i;
  }
}

TEST_P(Expanded, RefusesWhatItHasNoLoopsFor) {
  ExpandConvSpec spec;
  spec.geometry =
      ConvRecorder("Conv", {1, 32, 9, 9}, {3, 3}, {1, 1}, {1, 1}, 32, false, {1, 1}, 32);
  spec.constant_weights = true;
  spec.channels = 16;
  spec.x_layout = LaneLayout(spec.x_shape(), kFloat32, blocked());
  const auto refuses = [&](const auto& change) {
    ExpandConvSpec changed = spec;
    change(changed);
    return !cpu::depthwise::Refuses(changed, GetParam()).empty();
  };
  EXPECT_FALSE(refuses([](ExpandConvSpec&) {}));
  EXPECT_TRUE(refuses([](ExpandConvSpec& s) { s.constant_weights = false; }));
  EXPECT_TRUE(refuses([](ExpandConvSpec& s) { s.x_layout = nullptr; }));
  EXPECT_TRUE(refuses([](ExpandConvSpec& s) { s.dtype = kBFloat16; }));
  EXPECT_TRUE(refuses([](ExpandConvSpec& s) { s.front = {ActivationKind::kClip, 1, 2}; }));
  EXPECT_TRUE(refuses([](ExpandConvSpec& s) {
    s.geometry = ConvRecorder("Conv", {1, 32, 9, 9}, {3, 3}, {1, 1}, {1, 1}, 32, false, {1, 1}, 16);
  }));
}

}  // namespace
}  // namespace singa::test
