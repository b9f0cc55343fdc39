// Float32 convolutions by bfloat16 parts, on AMX and by the plain model of it, in all passes,
// against the definition in float64.

#include "backend/cpu/parts_product/offer.h"
#include "backend/cpu/parts_product/parts_units.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/conv_naive.h"
#include "singa/operation/conv.h"

namespace singa::test {
namespace {

using cpu::batch_blocked::PartsUnit;

class PartsConvolution : public PartsTest {};
INSTANTIATE_TEST_SUITE_P(Units, PartsConvolution, PartsTest::Units(),
                         [](const auto& by) { return UnitName(by.param); });

ConvSpec Spec(const Recorder& g, ConvPass pass, LaneTag tag) {
  auto spec = CurrentSpec<ConvSpec>();
  spec.pass = pass;
  spec.geometry = g;
  spec.x_layout = LaneLayout(g.input_shape(), kFloat32, tag);
  spec.dy_layout = LaneLayout(g.output_shape(), kFloat32, tag);
  return spec;
}

/// The results of a pass, plain.
std::vector<Tensor> Run(const ConvSpec& spec, const PartsUnit& unit,
                        const std::vector<Tensor>& inputs, const std::vector<Shape>& shapes) {
  const PlanPtr plan = cpu::parts_product::MakePlan(spec, unit);
  std::vector<Tensor> placed, results;
  for (size_t i = 0; i < inputs.size(); ++i) placed.push_back(InPlanLayout(*plan, i, inputs[i]));
  for (size_t i = 0; i < shapes.size(); ++i)
    results.push_back(NewOutput(*plan, i, shapes[i], DefaultDevice(), kFloat32));
  DefaultDevice()->Exec(spec.op(), plan, placed, results);
  return results;
}

/// Four units in the last place of the sum of magnitudes, for any number of terms; and what parts
/// leave out.
void ExpectExact(const Tensor& result, const Sums& sums, double parts_error, const char* what) {
  const double bound = 0x1p-21 + parts_error;
  const Vector values = Values(result);
  ASSERT_EQ(values.size(), sums.value.size()) << what;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_LE(std::abs(values[i] - sums.value[i]), bound * sums.magnitude[i])
        << what << " " << i << ": " << values[i] << " instead of " << sums.value[i];
}

void ExpectDefinition(const Recorder& g, Random& random, LaneTag tag, const PartsUnit& unit) {
  const double parts_error = cpu::batch_blocked::PartsError(unit.parts);
  SCOPED_TRACE(g.ToString() + (tag == LaneTag::kNhwc ? " nhwc" : " nChw16c"));
  const Tensor x = RandomTensor(random, g.input_shape()),
               W = RandomTensor(random, g.weight_shape()),
               b = RandomTensor(random, {g.out_channels}),
               dy = RandomTensor(random, g.output_shape()),
               add = RandomTensor(random, g.output_shape());
  const PassSums sums(g, x, W, b, dy);
  ConvSpec spec = Spec(g, ConvPass::kForward, tag);
  spec.has_add = random.Coin(), spec.activation = random.Coin();
  std::vector<Tensor> inputs = {x, W};
  if (g.bias) inputs.push_back(b);
  if (spec.has_add) inputs.push_back(add);
  ASSERT_EQ(cpu::parts_product::Refuses(spec), "");
  ExpectExact(Run(spec, unit, inputs, {g.output_shape()})[0], ForwardSums(spec, inputs),
              parts_error, "y");

  spec = Spec(g, ConvPass::kBackwardW, tag);
  std::vector<Shape> shapes = {g.weight_shape()};
  if (g.bias) shapes.push_back({g.out_channels});
  const std::vector<Tensor> gradients = Run(spec, unit, {dy, x}, shapes);
  ExpectExact(gradients[0], sums.dw, parts_error, "dW");
  if (g.bias) ExpectExact(gradients[1], sums.db, 0, "db");

  spec = Spec(g, ConvPass::kBackwardX, tag);
  spec.geometry.bias = false;
  if (!cpu::parts_product::Refuses(spec).empty()) return;
  ExpectExact(Run(spec, unit, {dy, W}, {g.input_shape()})[0], sums.dx, parts_error, "dx");
}

TEST_P(PartsConvolution, SlowIsTheDefinition) {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const LaneTag tag = random.Coin() ? LaneTag::kNhwc : LaneTag::kNChw16c;
    const auto channels = [&] {
      return tag == LaneTag::kNhwc ? random.Int(1, 50) : 16 * random.Int(1, 3);
    };
    const int64_t down = random.Coin() ? 1 : random.Int(1, 4),
                  across = down == 1 ? 1 : random.Int(1, 3);
    const std::vector<int64_t> dilation = {random.Int(1, 2), random.Int(1, 2)};
    const bool whole = down == 1;  // and no padding
    const auto padding = [&] { return whole ? 0 : random.Int(0, 2); };
    const std::vector<int64_t> pads = {padding(), padding(), padding(), padding()};
    const int64_t stride = random.Int(1, 2);
    const Shape x = {random.Int(1, 4), channels(), random.Int((down - 1) * 2 + 1, 12),
                     random.Int((across - 1) * 2 + 1, 12)};
    const Recorder g = ConvRecorder("Conv", x, {down, across}, {stride, stride}, pads, channels(),
                                    random.Coin(), dilation, 1);
    ExpectDefinition(g, random, tag, GetParam());
  }
}

/// Several blocks of results, and sums in pieces.
TEST_P(PartsConvolution, OfManyPixelsIsTheDefinition) {
  Random random(2);
  for (const int64_t stride : {1, 2}) {
    const Recorder g = ConvRecorder("Conv", {7, 32, 16 * stride, 13 * stride}, {1, 1},
                                    {stride, stride}, {0, 0}, 48, true, {1, 1}, 1);
    ExpectDefinition(g, random, LaneTag::kNChw16c, GetParam());
  }
}

/// Where AMX saves more than packing costs, and Winograd's method does not save more.
TEST(PartsConvolutionOffer, LeavesTheRestToOthers) {
  struct Case {
    Shape x;
    int64_t taps, out, stride;
    ConvPass pass;
    bool pays;
  };
  const Case cases[] = {
      {{32, 256, 14, 14}, 1, 1024, 1, ConvPass::kForward, true},
      {{32, 256, 14, 14}, 1, 1024, 1, ConvPass::kBackwardX, true},
      {{32, 256, 14, 14}, 1, 1024, 1, ConvPass::kBackwardW, true},
      {{32, 256, 28, 28}, 1, 512, 2, ConvPass::kBackwardX, true},
      {{32, 256, 28, 28}, 3, 256, 2, ConvPass::kForward, true},
      {{32, 64, 56, 56}, 1, 64, 1, ConvPass::kForward, false},  // the images' memory takes longest
      {{32, 16, 56, 56}, 1, 512, 1, ConvPass::kBackwardX, false},  // half of each run is zero
      {{1, 512, 7, 7}, 1, 512, 1, ConvPass::kForward, false},      // each weight is packed for few
  };
  for (const Case& c : cases) {
    const Recorder g = ConvRecorder("Conv", c.x, {c.taps, c.taps}, {c.stride, c.stride},
                                    {c.taps / 2, c.taps / 2}, c.out, false, {1, 1}, 1);
    ConvSpec spec = Spec(g, c.pass, LaneTag::kNChw16c);
    EXPECT_EQ(cpu::parts_product::Refuses(spec), "") << g.ToString();
    EXPECT_EQ(cpu::parts_product::Pays(spec), c.pays) << g.ToString();
    spec.x_layout = spec.dy_layout = nullptr;  // images would have to move
    EXPECT_FALSE(cpu::parts_product::Pays(spec)) << g.ToString();
  }
  if (VectorLanes() < 8) return;  // there is no Winograd's method
  const auto pays = [](int64_t size, ConvPass pass) {
    const Recorder g =
        ConvRecorder("Conv", {32, 512, size, size}, {3, 3}, {1, 1}, {1, 1}, 512, false, {1, 1}, 1);
    return cpu::parts_product::Pays(Spec(g, pass, LaneTag::kNChw16c));
  };
  EXPECT_FALSE(pays(28, ConvPass::kForward));
  EXPECT_FALSE(pays(28, ConvPass::kBackwardW));
  EXPECT_FALSE(pays(7, ConvPass::kBackwardX));
  // Winograd's products are of parts, too, where there is AMX.
  const bool parts = cpu::parts_product::IsOff().empty();
  EXPECT_EQ(pays(7, ConvPass::kBackwardW), !parts);
}

}  // namespace
}  // namespace singa::test
