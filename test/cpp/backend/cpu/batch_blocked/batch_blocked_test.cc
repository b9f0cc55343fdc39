// Convolutions with tiles of many images, in all passes, against the definition in float64.

#include "backend/cpu/batch_blocked/convolution.h"

#include <cstring>

#include "model/dispatch/dispatch.h"
#include "model/operation/conv/conv_naive.h"
#include "singa/operation/conv.h"

namespace singa::test {
namespace {

using cpu::batch_blocked::Unit;

/// Runs on every unit that this CPU has.
class Tiles : public testing::TestWithParam<Unit> {
 protected:
  void SetUp() override {
    if (!cpu::batch_blocked::IsThere(GetParam())) GTEST_SKIP() << "this CPU has none";
  }
};
INSTANTIATE_TEST_SUITE_P(Units, Tiles, testing::Values(Unit::kPlain, Unit::kAvx512, Unit::kAmx),
                         [](const auto& unit) { return cpu::batch_blocked::NameOf(unit.param); });

std::vector<Tensor> Gradients(const Recorder& g, const Tensor& dy, const Tensor& x, LaneTag tag,
                              Unit unit, int64_t cache = SecondLevelCacheBytes()) {
  auto spec = CurrentSpec<ConvSpec>();
  spec.pass = ConvPass::kBackwardW;
  spec.dtype = kBFloat16;
  spec.geometry = g;
  spec.x_layout = LaneLayout(g.input_shape(), kBFloat16, tag);
  spec.dy_layout = LaneLayout(g.output_shape(), kBFloat16, tag);
  EXPECT_EQ(cpu::batch_blocked::Refuses(spec), "");
  const PlanPtr plan = cpu::batch_blocked::MakeWeightGradient(spec, unit, cache);
  const Tensor inputs[] = {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, x)};
  std::vector<Tensor> results = {NewOutput(*plan, 0, g.weight_shape(), DefaultDevice(), kBFloat16)};
  if (g.bias) results.push_back(NewOutput(*plan, 1, {g.out_channels}, DefaultDevice(), kBFloat16));
  DefaultDevice()->Exec(spec.op(), plan, inputs, results);
  return results;
}

/// Expects sums in float32, rounded once to bfloat16.
void ExpectRounded(const Tensor& result, const Sums& sums, const char* what) {
  const Vector values = Values(result);
  ASSERT_EQ(values.size(), sums.value.size()) << what;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], sums.value[i],
                0x1.01p-8 * std::abs(sums.value[i]) + 0x1p-20 * sums.magnitude[i] + 1e-30)
        << what << " " << i;
}

void ExpectDefinition(const Recorder& g, Random& random, LaneTag tag, Unit unit) {
  SCOPED_TRACE(g.ToString() + (tag == LaneTag::kNhwc ? " nhwc" : " nChw16c"));
  const Tensor x = RandomTensor(random, g.input_shape(), kBFloat16),
               dy = RandomTensor(random, g.output_shape(), kBFloat16);
  const Vector xs = Values(x), dys = Values(dy);
  Sums dw(g.weight_shape().Count()), db(g.out_channels);
  ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) { dw.Add(wi, xs[xi] * dys[yi]); });
  for (size_t i = 0; i < dys.size(); ++i)
    db.Add(static_cast<int64_t>(i) / g.col_width % g.out_channels, dys[i]);
  const std::vector<Tensor> gradients = Gradients(g, dy, x, tag, unit);
  ExpectRounded(gradients[0], dw, "dW");
  if (g.bias) ExpectRounded(gradients[1], db, "db");
}

size_t BytesOf(const Tensor& t) { return t.layout() ? t.layout()->bytes() : t.bytes(); }

/// Expects zeros in the padding channels of blocks.
void ExpectZeroPadding(const Tensor& image, LaneTag tag) {
  if (tag != LaneTag::kNChw16c || !image.layout()) return;
  const Lanes lanes(image.shape(), tag);
  const auto* last =
      static_cast<const BFloat16*>(image.raw_data()) + (lanes.blocks - 1) * lanes.block_step;
  for (int64_t n = 0; n < lanes.images; ++n)
    for (int64_t at = 0; at < lanes.block_step; at += 16)
      for (int64_t c = lanes.filled(lanes.blocks - 1); c < 16; ++c)
        ASSERT_EQ(last[n * lanes.image_step + at + c].bits, 0) << n << " " << at << " " << c;
}

Recorder AnyGeometry(Random& random) {
  const auto taps = [&] { return random.Coin() ? random.Int(1, 4) : 1; };
  const int64_t down = taps(), across = taps();
  const std::vector<int64_t> dilation = {random.Int(1, 3), random.Int(1, 2)};
  const auto padding = [&] { return random.Coin() ? random.Int(0, 3) : 0; };
  const std::vector<int64_t> pads = {padding(), padding(), padding(), padding()};
  const auto size = [&](int64_t taps, int64_t dilation) {
    return random.Int((taps - 1) * dilation + 1, 10);
  };
  const Shape x = {random.Coin() ? random.Int(1, 40) : random.Int(60, 70), random.Int(1, 70),
                   size(down, dilation[0]), size(across, dilation[1])};
  return ConvRecorder("Conv", x, {down, across}, {random.Int(1, 3), random.Int(1, 3)}, pads,
                      random.Int(1, 70), random.Coin(), dilation, 1);
}

TEST_P(Tiles, SlowWeightGradientIsTheDefinition) {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const Recorder g = AnyGeometry(random);
    ExpectDefinition(g, random, random.Coin() ? LaneTag::kNhwc : LaneTag::kNChw16c, GetParam());
  }
}

/// Slices, chunks of rows, chunks of images, and a single chunk; on different numbers of threads.
TEST_P(Tiles, EveryWayToTheWeightGradientIsTheDefinition) {
  struct Case {
    Shape x;
    int64_t taps, out;
    int64_t cache;  // 64 kB hold sums of 32 x 32 weights, not more
  };
  const Case cases[] = {{{33, 16, 20, 33}, 3, 32, 1 << 20},
                        {{96, 48, 17, 16}, 1, 20, 1 << 16},
                        {{33, 80, 20, 31}, 1, 80, 1 << 16},
                        {{230, 80, 6, 5}, 1, 80, 1 << 16},
                        {{130, 16, 3, 4}, 3, 70, 1 << 16}};
  const ThreadCount scope;
  for (const Case& c : cases) {
    Random random(2);
    const Recorder g = ConvRecorder("Conv", c.x, {c.taps, c.taps}, {1, 1}, {c.taps / 2, c.taps / 2},
                                    c.out, true, {1, 1}, 1);
    SCOPED_TRACE(g.ToString());
    // Integers, so that sums are exact in any order, and oneDNN or `reference` can provide them.
    const Tensor x = RandomTensor(random, g.input_shape(), kInt32, -2, 3).AsType(kBFloat16);
    const Tensor dy = RandomTensor(random, g.output_shape(), kInt32, -1, 2).AsType(kBFloat16);
    const Vector expected =
        Values(ConvBackwardW(dy.AsType(kFloat32), x.AsType(kFloat32), ConvHandle(g)));
    for (const int threads : {1, 2, 3}) {
      SetNumThreads(threads);
      const Vector values = Values(Gradients(g, dy, x, LaneTag::kNhwc, GetParam(), c.cache)[0]);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], expected[i], 0x1.01p-8 * std::abs(expected[i]) + 1e-2)
            << i << ", " << threads << " threads";
    }
  }
}

/// Padding of tiles and blocks stays zero, even if it is multiplied with NaN.
TEST_P(Tiles, NumbersThatAreNoneStayInTheirWeights) {
  const Recorder g =
      ConvRecorder("Conv", {33, 19, 4, 4}, {3, 3}, {1, 1}, {1, 1}, 21, false, {1, 1}, 1);
  Random random(3);
  const Tensor x = RandomTensor(random, g.input_shape(), kBFloat16),
               dy = RandomTensor(random, g.output_shape(), kBFloat16);
  auto* elements = static_cast<BFloat16*>(x.raw_data());
  elements[5 * 16] = BFloat16(std::numeric_limits<float>::infinity());
  elements[7 * 16] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  const Tensor dw = Gradients(g, dy, x, LaneTag::kNhwc, GetParam())[0];
  const auto* stored = static_cast<const BFloat16*>(dw.raw_data());
  const auto is_nan = [](BFloat16 v) { return std::isnan(static_cast<float>(v)); };
  for (int64_t block = 0; block < 2; ++block)  // [output / 16][tap][input / 2][output][2]
    for (int64_t tap = 0; tap < 9; ++tap)
      for (int64_t in = 0; in < 32; ++in)
        for (int64_t out = 0; out < 16; ++out) {
          const int64_t at = (((block * 9 + tap) * 16 + in / 2) * 16 + out) * 2 + in % 2;
          const auto value = static_cast<float>(stored[at]);
          if (in >= 19 || block * 16 + out >= 21) {
            ASSERT_EQ(value, 0) << in << " " << block * 16 + out;
          } else if (in != 5 && in != 7) {
            ASSERT_FALSE(is_nan(stored[at]) || std::isinf(value)) << in << " " << out;
          }
        }
  // Pixel (0, 0) is under the taps above and left of an output only.
  const Vector values = Values(dw);
  EXPECT_TRUE(std::isnan(values[(0 * 19 + 7) * 9 + 4]));
  EXPECT_TRUE(std::isinf(values[(0 * 19 + 5) * 9 + 4]));
  EXPECT_FALSE(std::isnan(values[(0 * 19 + 7) * 9 + 8]));
}

TEST_P(Tiles, SmallImagesAreTheDefinition) {
  Random random(4);
  const ThreadCount scope;
  for (int i = 0; i < 60; ++i) {
    const Recorder g = AnyGeometry(random);
    const LaneTag tag = random.Coin() ? LaneTag::kNhwc : LaneTag::kNChw16c;
    SCOPED_TRACE(g.ToString() + (tag == LaneTag::kNhwc ? " nhwc" : " nChw16c"));
    const Tensor x = RandomTensor(random, g.input_shape(), kBFloat16),
                 w = RandomTensor(random, g.weight_shape(), kBFloat16),
                 b = RandomTensor(random, {g.out_channels}, kBFloat16),
                 dy = RandomTensor(random, g.output_shape(), kBFloat16);
    const PassSums sums(g, x, w, b, dy);
    ConvSpec spec;
    spec.dtype = kBFloat16;
    spec.geometry = g;
    spec.x_layout = LaneLayout(g.input_shape(), kBFloat16, tag);
    spec.threads = static_cast<int>(random.Int(1, 5));
    SetNumThreads(spec.threads);
    const auto run = [&](const std::vector<Tensor>& inputs, const Shape& shape) {
      EXPECT_EQ(cpu::batch_blocked::Refuses(spec), "");
      const PlanPtr plan = cpu::batch_blocked::MakeSmallImages(spec, GetParam());
      std::vector<Tensor> wanted;
      for (const Tensor& input : inputs)
        wanted.push_back(InPlanLayout(*plan, wanted.size(), input));
      const Tensor result = NewOutput(*plan, 0, shape, DefaultDevice(), kBFloat16);
      std::memset(result.raw_data(), 0xff, BytesOf(result));
      DefaultDevice()->Exec(spec.op(), plan, wanted, {&result, 1});
      ExpectZeroPadding(result, tag);
      return result;
    };
    ExpectRounded(
        run(g.bias ? std::vector<Tensor>{x, w, b} : std::vector<Tensor>{x, w}, g.output_shape()),
        sums.y, "y");
    spec.pass = ConvPass::kBackwardX;
    spec.dy_layout = LaneLayout(g.output_shape(), kBFloat16, tag);
    ExpectRounded(run({dy, w}, g.input_shape()), sums.dx, "dx");
  }
}

TEST(Tiles, AreChosenWhereTheyAreFull) {
  backend::EnsureRegistered();  // applies oneDNN's limit on the instruction set
  const auto takes_tiles = [](ConvPass pass, int64_t images, int64_t size) {
    auto spec = CurrentSpec<ConvSpec>();
    spec.pass = pass;
    spec.dtype = kBFloat16;
    spec.geometry = ConvRecorder("Conv", {images, 256, size, size}, {3, 3}, {1, 1}, {1, 1}, 256,
                                 false, {1, 1}, 1);
    return FindPlan(*DefaultDevice(), spec)->implementation() == std::string("tiles");
  };
  const bool amx = cpu::batch_blocked::BestUnit() == Unit::kAmx;
  const bool any = cpu::batch_blocked::BestUnit() != Unit::kPlain;
  for (const ConvPass pass : {ConvPass::kForward, ConvPass::kBackwardX, ConvPass::kBackwardW}) {
    const bool weights = pass == ConvPass::kBackwardW;
    EXPECT_EQ(takes_tiles(pass, 128, 2), any);
    EXPECT_EQ(takes_tiles(pass, 128, 4), weights ? any : amx);
    EXPECT_EQ(takes_tiles(pass, 128, 8), weights && amx);
    EXPECT_FALSE(takes_tiles(pass, 3, 4));
  }
}

}  // namespace
}  // namespace singa::test
