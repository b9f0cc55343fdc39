// Winograd's convolution against the definition in float64, in all passes, layouts and paddings.

#include "backend/cpu/winograd/convolution.h"

#include <algorithm>
#include <optional>
#include <ostream>

#include "backend/cpu/parts_product/offer.h"
#include "backend/cpu/parts_product/parts_units.h"
#include "backend/cpu/winograd/filter.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/conv_naive.h"
#include "singa/operation/conv.h"

namespace singa::test {
namespace {

using cpu::batch_blocked::kLeastParts;
using cpu::batch_blocked::PartsUnit;
using cpu::batch_blocked::Unit;

/// Vectors of both widths, and products of bfloat16 parts by AMX or the plain model of it.
struct Way {
  int64_t lanes;
  DType dtype;
  std::optional<PartsUnit> parts = std::nullopt;

  PlanPtr Plan(const ConvSpec& spec) const {
    return parts ? cpu::winograd::MakePartsPlan(spec, *parts)
                 : cpu::winograd::MakePlan(spec, lanes);
  }
  double factor_error() const { return parts ? cpu::batch_blocked::PartsError(parts->parts) : 0; }
  std::string Name() const {
    return std::to_string(lanes) + "_" + DTypeName(dtype) + (parts ? "_" + UnitName(*parts) : "");
  }
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.Name(); }

/// Runs in each way that this CPU has.
class Winograd : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    backend::EnsureRegistered();  // applies oneDNN's limit on the instruction set
    if (VectorLanes() < lanes_) GTEST_SKIP() << "this CPU has none";
    if (way_.parts && !cpu::batch_blocked::IsThere(way_.parts->unit))
      GTEST_SKIP() << "this CPU has none";
  }

  const Way way_ = GetParam();
  const int64_t lanes_ = way_.lanes;
  const DType dtype_ = way_.dtype;
  /// The plain model is slow.
  const bool slow_ = way_.parts && way_.parts->unit == Unit::kPlain;
  const LaneTag blocked_ = lanes_ == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c;

  Tensor Draw(Random& random, const Shape& shape, double most = 1) const {
    return RandomTensor(random, shape, dtype_, -most, most);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Winograd,
                         testing::Values(Way{8, kFloat32}, Way{8, kBFloat16}, Way{16, kFloat32},
                                         Way{16, kBFloat16},
                                         Way{16, kFloat32, PartsUnit{Unit::kPlain}},
                                         Way{16, kFloat32, PartsUnit{Unit::kAmx}},
                                         Way{16, kFloat32, PartsUnit{Unit::kPlain, kLeastParts}},
                                         Way{16, kFloat32, PartsUnit{Unit::kAmx, kLeastParts}}),
                         [](const auto& way) { return way.param.Name(); });

/// Channels that fill vectors or do not, with at least `least` vectors.
Recorder Geometry(Random& random, int64_t lanes, bool bias, int64_t least) {
  constexpr std::pair<int64_t, int64_t> kFilters[] = {{3, 3}, {5, 5}, {1, 3},
                                                      {3, 1}, {1, 7}, {7, 1}};
  const auto [down, across] = kFilters[random.Int(0, 5)];
  const auto channels = [&](int64_t most) {
    const int64_t last = random.Coin() ? lanes : random.Int(lanes / 2 + 1, lanes);
    return lanes * random.Int(least, most - 1) + (last < lanes || least == 0 ? last : 0);
  };
  // Filters of 5 and 7 require images that fill a tile.
  const auto size = [&](int64_t taps) { return random.Int(taps > 3 ? taps + 3 : taps, 13); };
  if (down == 1 && random.Coin())  // signals
    return ConvRecorder("Conv", {random.Int(1, 3), channels(3), size(across)}, {across}, {1},
                        {random.Int(0, across - 1), random.Int(0, across - 1)}, channels(3), bias,
                        {1}, 1);
  const Shape x = {random.Int(1, 3), channels(3), size(down), size(across)};
  const std::vector<int64_t> padding = {random.Int(0, down - 1), random.Int(0, across - 1),
                                        random.Int(0, down - 1), random.Int(0, across - 1)};
  return ConvRecorder("Conv", x, {down, across}, {1, 1}, padding, channels(3), bias, {1, 1}, 1);
}

/// Runs the pass by Winograd's method, whether or not it is faster.
std::vector<Tensor> RunPass(ConvPass pass, const Recorder& g, const std::vector<Tensor>& inputs,
                            const std::vector<Shape>& outputs, LaneTag tag, const Way& way) {
  auto spec = CurrentSpec<ConvSpec>();
  spec.pass = pass;
  spec.dtype = inputs[0].data_type();
  spec.geometry = g;
  const auto layout = [&](const Shape& shape) { return LaneLayout(shape, spec.dtype, tag); };
  spec.x_layout = layout(g.input_shape());
  if (pass != ConvPass::kForward) spec.dy_layout = layout(g.output_shape());
  EXPECT_EQ(cpu::winograd::Refuses(spec, way.lanes), "");
  const PlanPtr plan = way.Plan(spec);
  std::vector<Tensor> wanted;
  for (const Tensor& input : inputs) wanted.push_back(InPlanLayout(*plan, wanted.size(), input));
  std::vector<Tensor> results;
  for (size_t i = 0; i < outputs.size(); ++i)
    results.push_back(NewOutput(*plan, i, outputs[i], DefaultDevice(), spec.dtype));
  DefaultDevice()->Exec(spec.op(), plan, wanted, results);
  return results;
}

/// Winograd's method rounds more and spreads errors over a tile, so a sum may be off by eight times
/// the bound of its plane's largest sum, in float32, and eight times what parts leave out. OPCHECK
/// allows the same. The result is rounded once.
void ExpectSpreadSums(const Tensor& result, const Shape& shape, const Sums& sums, const Way& way,
                      const std::string& what) {
  ASSERT_EQ(result.shape(), shape) << what;
  const auto plane = static_cast<std::ptrdiff_t>(shape.Count(2, shape.rank()));
  Vector tolerance(sums.value.size());
  for (std::ptrdiff_t at = 0; at < shape.Count(); at += plane) {
    const auto largest = [&](const Vector& of) {
      return *std::max_element(of.begin() + at, of.begin() + at + plane);
    };
    const double rounding = 8 * Epsilon(kFloat32) * std::sqrt(largest(sums.length));
    std::fill_n(tolerance.begin() + at, plane,
                8 * (rounding + way.factor_error()) * largest(sums.magnitude));
  }
  ExpectNear(result, sums.value, tolerance, what);
}

TEST_P(Winograd, EveryPassIsTheDefinition) {
  Random random(1);
  for (int i = 0; i < (slow_ ? 16 : 80); ++i) {
    const LaneTag tag = random.Coin() ? LaneTag::kNhwc : blocked_;
    const Recorder g = Geometry(random, lanes_, random.Coin(), tag == LaneTag::kNhwc);
    SCOPED_TRACE(g.ToString());
    const Tensor x = Draw(random, g.input_shape()), w = Draw(random, g.weight_shape());
    const Tensor dy = Draw(random, g.output_shape()), b = Draw(random, {g.out_channels});
    const PassSums sums(g, x, w, b, dy);
    const std::vector<Tensor> inputs =
        g.bias ? std::vector<Tensor>{x, w, b} : std::vector<Tensor>{x, w};
    ExpectSpreadSums(RunPass(ConvPass::kForward, g, inputs, {g.output_shape()}, tag, way_)[0],
                     g.output_shape(), sums.y, way_, "y");
    Recorder plain = g;
    plain.bias = false;
    ExpectSpreadSums(RunPass(ConvPass::kBackwardX, plain, {dy, w}, {g.input_shape()}, tag, way_)[0],
                     g.input_shape(), sums.dx, way_, "dx");
    const Shape weights = g.weight_shape(), channels = {g.out_channels};
    const std::vector<Shape> shapes =
        g.bias ? std::vector<Shape>{weights, channels} : std::vector<Shape>{weights};
    const std::vector<Tensor> gradients =
        RunPass(ConvPass::kBackwardW, g, {dy, x}, shapes, tag, way_);
    ExpectSpreadSums(gradients[0], g.weight_shape(), sums.dw, way_, "dW");
    if (g.bias) ExpectSums(gradients[1], {g.out_channels}, sums.db, "db");
  }
}

/// The options of inference: a residual (in y's memory or separate), ReLU, and prepared filters.
TEST_P(Winograd, SlowForwardWithAddReluAndPreparedFilter) {
  Random random(4);
  int prepared = 0;
  const int count = slow_ ? 15 : 50;
  for (int i = 0; i < count; ++i) {
    auto spec = CurrentSpec<ConvSpec>();
    const LaneTag tag = random.Coin() ? LaneTag::kNhwc : blocked_;
    // Every fifth case has more tiles than a chunk.
    spec.geometry = i % 5 ? Geometry(random, lanes_, random.Coin(), tag == LaneTag::kNhwc)
                          : ConvRecorder("Conv", {2, lanes_ * random.Int(1, 12), 33, 30}, {3, 3},
                                         {1, 1}, {1, 1}, lanes_ * 2, random.Coin(), {1, 1}, 1);
    const Recorder& g = spec.geometry;
    spec.has_add = random.Coin();
    spec.activation = random.Coin();
    spec.constant_weights = random.Coin();
    const Shape x_shape = g.input_shape(), y_shape = g.output_shape();
    spec.dtype = dtype_;
    spec.x_layout = LaneLayout(x_shape, dtype_, tag);
    SCOPED_TRACE(g.ToString());
    std::vector<Tensor> inputs(spec.add_input() + spec.has_add);
    inputs[0] = Draw(random, x_shape);
    inputs[1] = Draw(random, g.weight_shape());
    if (g.bias) inputs[2] = Draw(random, {g.out_channels});
    if (spec.has_add) inputs.back() = Draw(random, y_shape, 4);

    const Sums y = ForwardSums(spec, inputs);

    EXPECT_EQ(cpu::winograd::Refuses(spec, lanes_), "");
    const PlanPtr plan = way_.Plan(spec);
    prepared += plan->input_layout(1) != nullptr;
    EXPECT_TRUE(spec.constant_weights || !plan->input_layout(1));
    for (size_t k = 0; k < inputs.size(); ++k) inputs[k] = InPlanLayout(*plan, k, inputs[k]);
    EXPECT_EQ(plan->inplace_input(0), spec.has_add ? static_cast<int>(spec.add_input()) : -1);
    const bool in_place = spec.has_add && random.Coin();
    const Tensor result =
        in_place ? inputs.back() : NewOutput(*plan, 0, y_shape, DefaultDevice(), dtype_);
    DefaultDevice()->Exec(spec.op(), plan, inputs, {&result, 1});
    ExpectSpreadSums(result, y_shape, y, way_, "y");
  }
  EXPECT_EQ(prepared > count / 6, dtype_ == kFloat32);
  EXPECT_TRUE(dtype_ == kFloat32 || prepared == 0);
}

TEST_P(Winograd, PreparedFiltersComeBack) {
  if (dtype_ != kFloat32) GTEST_SKIP() << "none is prepared";
  Random random(5);
  for (const int64_t out : {lanes_, 3 * lanes_, 4 * lanes_, 2 * lanes_ - 3}) {
    const int64_t taps = random.Coin() ? 3 : 5;
    const Tensor w = RandomTensor(random, {out, 2 * lanes_ - 1, taps, taps});
    const LayoutPtr layout = cpu::winograd::PreparedLayout(w.shape(), lanes_);
    EXPECT_TRUE(SameLayout(layout, cpu::winograd::PreparedLayout(w.shape(), lanes_)));
    const Tensor prepared = w.ToLayout(layout);
    const Vector before = Values(w), after = Values(prepared);
    for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-5);
  }
}

/// Zero times infinity is NaN, also in the padding channels of a vector.
TEST_P(Winograd, ChannelsThatDoNotExistStayZero) {
  const Recorder g = ConvRecorder("Conv", {2, lanes_ - 1, 7, 6}, {5, 5}, {1, 1}, {2, 2}, lanes_ + 5,
                                  true, {1, 1}, 1);
  Random random(6);
  const Shape shape = g.input_shape();
  Vector values = Values(Draw(random, shape));
  values[3] = kInf;
  const Tensor x = FromValues(shape, values, dtype_), w = Draw(random, g.weight_shape()),
               b = Draw(random, {lanes_ + 5});
  const Tensor y = RunPass(ConvPass::kForward, g, {x, w, b}, {g.output_shape()}, blocked_, way_)[0];
  const auto element = [&](int64_t at) {
    return dtype_ == kBFloat16 ? static_cast<float>(static_cast<const BFloat16*>(y.raw_data())[at])
                               : static_cast<const float*>(y.raw_data())[at];
  };
  const int64_t pixels = 7 * 6, blocks = 2;
  for (int64_t block = 0; block < 2 * blocks; ++block)
    for (int64_t pixel = 0; pixel < pixels; ++pixel)
      for (int64_t lane = 5; lane < lanes_ && block % blocks == 1; ++lane)
        ASSERT_EQ(element((block * pixels + pixel) * lanes_ + lane), 0) << block << " " << lane;
}

/// More tiles than a chunk, and a partial last chunk.
TEST_P(Winograd, ManyTilesDoNotDependOnThreads) {
  Random random(2);
  const Recorder g = ConvRecorder("Conv", {slow_ ? 2 : 8, 32, 33, 30}, {3, 3}, {1, 1}, {1, 1}, 48,
                                  false, {1, 1}, 1);
  const Tensor x = Draw(random, g.input_shape()), w = Draw(random, g.weight_shape());
  const Tensor dy = Draw(random, g.output_shape());
  SameOnThreads({2, 3}, [&] {
    return ValuesOf(
        {RunPass(ConvPass::kForward, g, {x, w}, {g.output_shape()}, blocked_, way_)[0],
         RunPass(ConvPass::kBackwardX, g, {dy, w}, {g.input_shape()}, blocked_, way_)[0],
         RunPass(ConvPass::kBackwardW, g, {dy, x}, {g.weight_shape()}, LaneTag::kNhwc, way_)[0]});
  });
  const PassSums sums(g, x, w, Tensor(), dy);
  ExpectSpreadSums(
      RunPass(ConvPass::kForward, g, {x, w}, {g.output_shape()}, LaneTag::kNhwc, way_)[0],
      g.output_shape(), sums.y, way_, "y");
  ExpectSpreadSums(RunPass(ConvPass::kBackwardW, g, {dy, x}, {g.weight_shape()}, blocked_, way_)[0],
                   g.weight_shape(), sums.dw, way_, "dW");
}

/// Sums that exceed the L2 cache are accumulated chunk by chunk.
TEST_P(Winograd, ManySumsDoNotDependOnThreads) {
  Random random(7);
  const Recorder g =
      ConvRecorder("Conv", {5, 96, 33, 30}, {3, 3}, {1, 1}, {1, 1}, 96, false, {1, 1}, 1);
  const Tensor x = Draw(random, g.input_shape()), dy = Draw(random, g.output_shape());
  const Vector result = SameOnThreads({2, 3}, [&] {
    return Values(RunPass(ConvPass::kBackwardW, g, {dy, x}, {g.weight_shape()}, blocked_, way_)[0]);
  });
  const StrictScope strict(true);
  const Vector direct = Values(ConvBackwardW(dy, x, ConvHandle(g)));
  for (size_t i = 0; i < direct.size(); ++i)
    ASSERT_NEAR(result[i], direct[i],
                dtype_ == kBFloat16 ? 0.02 + 0x1p-6 * std::abs(direct[i]) : 2e-2)
        << i;
}

/// A filter whose panels are multiplied some channels at a time, or as a whole by several threads.
TEST_P(Winograd, FewTilesDoNotDependOnThreads) {
  Random random(10);
  const Recorder g = ConvRecorder("Conv", {1, slow_ ? 40 : 296, 8, 7}, {3, 3}, {1, 1}, {1, 1}, 72,
                                  false, {1, 1}, 1);
  const Tensor x = Draw(random, g.input_shape()), w = Draw(random, g.weight_shape());
  SameOnThreads({2, 3}, [&] {
    return ValuesOf(
        {RunPass(ConvPass::kForward, g, {x, w}, {g.output_shape()}, blocked_, way_)[0]});
  });
  Sums y(g.output_shape().Count());
  const Vector xs = Values(x), ws = Values(w);
  ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) { y.Add(yi, xs[xi] * ws[wi]); });
  ExpectSpreadSums(RunPass(ConvPass::kForward, g, {x, w}, {g.output_shape()}, blocked_, way_)[0],
                   g.output_shape(), y, way_, "y");
}

/// AMX, or the plain model of it.
PartsUnit ThreeParts() {
  return {cpu::batch_blocked::IsThere(Unit::kAmx) ? Unit::kAmx : Unit::kPlain};
}

/// Calls visit(pass, shape of the second argument, shape of the result).
void ForEachPass(const Recorder& g,
                 const std::function<void(ConvPass, const Shape&, const Shape&)>& visit) {
  visit(ConvPass::kForward, g.weight_shape(), g.output_shape());
  visit(ConvPass::kBackwardX, g.weight_shape(), g.input_shape());
  visit(ConvPass::kBackwardW, g.input_shape(), g.weight_shape());
}

/// Infinities, NaN, and numbers whose products overflow or have no parts: the same results are
/// finite as with float32 products, and the others are equal or both NaN.
TEST(WinogradParts, TreatNumbersWithoutPartsAsFloat32Does) {
  backend::EnsureRegistered();
  if (VectorLanes() < 16) GTEST_SKIP() << "this CPU has no AVX-512";
  const Recorder g =
      ConvRecorder("Conv", {2, 160, 19, 20}, {3, 3}, {1, 1}, {1, 1}, 48, false, {1, 1}, 1);
  constexpr double kInfinity = kInf;
  struct Case {
    double special, scale;
  };
  for (const Case& c :
       {Case{kInfinity, 1}, Case{std::nan(""), 1}, Case{0x1.8p126, 1}, Case{0x1p-130, 0x1p-130}}) {
    Random random(8);
    ForEachPass(g, [&](ConvPass pass, const Shape& second, const Shape& result) {
      const Shape first = pass == ConvPass::kForward ? g.input_shape() : g.output_shape();
      Vector values = Values(RandomTensor(random, first));
      for (double& value : values) value *= c.scale;
      values[values.size() / 3] = c.special;
      const std::vector<Tensor> inputs = {FromValues(first, values, kFloat32),
                                          RandomTensor(random, second)};
      const auto run = [&](const Way& way) {
        return Values(RunPass(pass, g, inputs, {result}, LaneTag::kNhwc, way)[0]);
      };
      const Vector plain = run({16, kFloat32}), parts = run({16, kFloat32, ThreeParts()});
      double largest = 0;
      for (const double value : plain)
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < plain.size(); ++i) {
        ASSERT_EQ(std::isfinite(parts[i]), std::isfinite(plain[i])) << c.special << " " << i;
        if (std::isnan(plain[i])) {
          ASSERT_TRUE(std::isnan(parts[i])) << c.special << " " << i << ": " << parts[i];
        } else if (std::isinf(plain[i])) {
          ASSERT_EQ(parts[i], plain[i]) << c.special << " " << i;
        } else {
          ASSERT_NEAR(parts[i], plain[i], 1e-5 * largest) << c.special << " " << i;
        }
      }
    });
  }
}

/// The root mean square error of products of parts is no larger than that of float32 products.
TEST(WinogradParts, AreAsExactAsFloat32) {
  backend::EnsureRegistered();
  if (VectorLanes() < 16) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const int64_t channels : {64, 160}) {
    const Recorder g =
        ConvRecorder("Conv", {1, channels, 12, 13}, {3, 3}, {1, 1}, {1, 1}, 64, false, {1, 1}, 1);
    for (const double exponents : {0.0, 20.0}) {
      Random random(9);
      const auto draw = [&](const Shape& shape) {
        Vector values(static_cast<size_t>(shape.Count()));
        for (double& value : values)
          value = std::ldexp(random.Real(), static_cast<int>(random.Real(-exponents, exponents)));
        return FromValues(shape, values, kFloat32);
      };
      const Tensor x = draw(g.input_shape()), w = draw(g.weight_shape()),
                   dy = draw(g.output_shape());
      const PassSums sums(g, x, w, Tensor(), dy);
      ForEachPass(g, [&](ConvPass pass, const Shape&, const Shape& result) {
        const bool forward = pass == ConvPass::kForward, to_x = pass == ConvPass::kBackwardX;
        const std::vector<Tensor> inputs = {forward ? x : dy, forward || to_x ? w : x};
        const Sums& right = forward ? sums.y : to_x ? sums.dx : sums.dw;
        const auto error = [&](const Way& way) {
          const Vector got = Values(RunPass(pass, g, inputs, {result}, LaneTag::kNhwc, way)[0]);
          double sum = 0;
          for (size_t i = 0; i < got.size(); ++i) sum += std::pow(got[i] - right.value[i], 2);
          return std::sqrt(sum);
        };
        const double plain = error({16, kFloat32});
        EXPECT_LE(error({16, kFloat32, ThreeParts()}), 1.02 * plain)
            << static_cast<int>(pass) << " " << channels << " " << exponents;
      });
    }
  }
}

TEST(WinogradParts, AreForManyChannels) {
  if (!cpu::parts_product::IsOff().empty()) GTEST_SKIP() << cpu::parts_product::IsOff();
  const auto pays = [](int64_t batch, int64_t channels, int64_t size, ConvPass pass) {
    auto spec = CurrentSpec<ConvSpec>();
    spec.pass = pass;
    spec.geometry = ConvRecorder("Conv", {batch, channels, size, size}, {3, 3}, {1, 1}, {1, 1},
                                 channels, false, {1, 1}, 1);
    return cpu::winograd::PartsPay(spec);
  };
  for (const ConvPass pass : {ConvPass::kForward, ConvPass::kBackwardX, ConvPass::kBackwardW}) {
    EXPECT_TRUE(pays(32, 256, 14, pass));
    EXPECT_FALSE(pays(32, 64, 56, pass));
    EXPECT_EQ(pays(32, 512, 7, pass), pass == ConvPass::kBackwardW);
  }
}

TEST(Winograd, StrictModeLeavesItOut) {
  ConvSpec spec;
  spec.geometry =
      ConvRecorder("Conv", {128, 64, 32, 32}, {3, 3}, {1, 1}, {1, 1}, 64, false, {1, 1}, 1);
  const StrictScope scope(false);
  const std::string implementation = FindPlan(*DefaultDevice(), spec)->implementation();
  EXPECT_EQ(implementation == "winograd", cpu::winograd::Refuses(spec).empty());
  SetStrict(true);
  EXPECT_NE(FindPlan(*DefaultDevice(), spec)->implementation(), std::string("winograd"));
}

}  // namespace
}  // namespace singa::test
