// Which convolutions Winograd's method supports, and for which it is faster.

#include <algorithm>

#include "backend/cpu/batch_blocked/product.h"
#include "backend/cpu/linalg/tile_product.h"
#include "backend/cpu/parts_product/offer.h"
#include "backend/cpu/winograd/convolution.h"
#include "backend/cpu/winograd/taps.h"
#include "model/dispatch/kernel.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::cpu::winograd {
namespace {

/// The cost of Winograd's method in multiply-adds of the direct method, measured with
/// benchmark/operators.py on a CPU of each kind.
struct Costs {
  double product;           // one of Winograd's multiply-adds
  double value, far_value;  // transforming a channel of a tile, from the caches or memory
  double cached;            // number of values up to which images are cached
  // transforming the filter of a channel pair, or its gradient, beyond reading it
  double pair, turned_pair, gradient_pair;
  double prepared_pair;       // reading it from the L2 cache only (estimated)
  int64_t pixels;             // of a row, which the direct method computes together
  int64_t results, summands;  // channel multiples to which the direct method pads
};
constexpr Costs kAvx512Costs = {1.15, 500, 1150, 4e5, 170, 400, 600, 60, 1, 16, 1};
constexpr Costs kAvx2Costs = {1.05, 450, 700, 2e5, 140, 240, 430, 60, 4, 8, 8};

/// How many times as fast as in float32 the direct method is, measured with benchmark/operators.py.
/// Winograd's method multiplies float32 values in both types.
double DirectSpeed(DType dtype) {
  using batch_blocked::Unit;
  if (dtype == kFloat32) return 1;
  switch (batch_blocked::BestUnit()) {
    case Unit::kAmx:
      return 16;
    case Unit::kAvx512:
      return 2.2;
    default:
      return 1;  // or less: bfloat16 is converted first
  }
}

/// True if at least half of the vectors' lanes hold channels.
bool MostlyFilled(int64_t channels, int64_t lanes) {
  return RoundUp(channels, lanes) < 2 * channels;
}

}  // namespace

std::string Refuses(const ConvSpec& spec, int64_t lanes) {
  const Recorder& r = spec.geometry;
  if (lanes < 8) return "Winograd's method pays with AVX-512, AVX2 or NEON";
  if (spec.pass == ConvPass::kBackwardB) return "Winograd's method is for the other passes";
  if (spec.plain) return "Winograd's method is for channels-last and blocked images";
  if (spec.dtype != kFloat32 && spec.dtype != kBFloat16)
    return "Winograd's method is for float32 and bfloat16";
  if (r.spatial == 3) return "Winograd's method is for one or two dimensions";
  const bool known = WithTaps(spec, []<class Taps>(Taps) { return true; });
  if (!known || r.stride_h() != 1 || r.stride_w() != 1 || r.dilation_h() != 1 ||
      r.dilation_w() != 1)
    return "Winograd's method is for kernels of 3 x 3, 5 x 5, and 3 or 7 in a row, of stride and "
           "dilation 1";
  // In a tile larger than the image most terms cancel, and the rest has the whole tile's rounding
  // error.
  const auto thin = [](int64_t taps, int64_t in, int64_t out) {
    return taps > 3 && std::min(in, out) < Axis<7>::kOut;
  };
  if (thin(r.kernel_h(), r.height(), r.conv_height()) ||
      thin(r.kernel_w(), r.width(), r.conv_width()))
    return "Winograd's method is for images that fill a tile, where kernels have 5 weights and "
           "more";
  if (r.group != 1) return "Winograd's method is for one group";
  if (spec.activation && spec.activation.kind != ActivationKind::kRelu)
    return "Winograd's method has no activation but ReLU";
  if (!MostlyFilled(r.in_channels, lanes) || !MostlyFilled(r.out_channels, lanes))
    return "Winograd's method is for channels that fill half a vector and more";
  if (std::max(r.pad_top(), r.pad_bottom()) >= r.kernel_h() ||
      std::max(r.pad_left(), r.pad_right()) >= r.kernel_w())
    return "Winograd's method is for padding that is smaller than the kernel";
  if (IsStrict()) return "Winograd's method rounds more than strict mode allows";
  return "";
}

bool Pays(const ConvSpec& spec, int64_t lanes) {
  const Costs& costs = lanes == 16 ? kAvx512Costs : kAvx2Costs;
  const Recorder& r = spec.geometry;
  const bool to_input = spec.pass == ConvPass::kBackwardX;
  const double pair = IsPrepared(spec, lanes)             ? costs.prepared_pair
                      : to_input                          ? costs.turned_pair
                      : spec.pass == ConvPass::kBackwardW ? costs.gradient_pair
                                                          : costs.pair;
  return WithTaps(spec, [&]<class Taps>(Taps) {
    const Tiles tiles(r.batchsize, to_input ? r.height() : r.conv_height(),
                      to_input ? r.width() : r.conv_width(), Taps::kOutDown, Taps::kOutAcross);
    constexpr double share = Taps::kPositions / 36.0;  // relative to a tile of 6 x 6
    const int64_t rows = lanes == 16 ? RowsFor<16>(tiles.count) : RowsFor<8>(tiles.count);
    const int64_t in = RoundUp(r.in_channels, lanes), out = RoundUp(r.out_channels, lanes);
    const auto values = share * static_cast<double>(tiles.count * (in + out));
    const auto pairs = static_cast<double>(in * out);
    const double cost = costs.product * static_cast<double>(rows * Taps::kPositions) * pairs +
                        (values < costs.cached ? costs.value : costs.far_value) * values +
                        pair * share * pairs;
    const int64_t direct = r.batchsize * r.conv_height() * RoundUp(r.conv_width(), costs.pixels) *
                           Taps::kWeights *
                           RoundUp(r.in_channels, to_input ? costs.results : costs.summands) *
                           RoundUp(r.out_channels, to_input ? costs.summands : costs.results);
    return cost * DirectSpeed(spec.dtype) < 0.95 * static_cast<double>(direct);
  });
}

bool PartsPay(const ConvSpec& spec) {
  // Packing a value takes a time that its products share. In forward and for dx, all tiles share
  // that of the filter. Measured for 3 x 3 (docs/developers/experiments.md).
  const Recorder& r = spec.geometry;
  constexpr int64_t kChannels = 128, kTiles = 512;
  if (spec.dtype != kFloat32 || VectorLanes() != 16 || !parts_product::IsOff().empty())
    return false;
  if (parts_product::UnitInUse().unit == batch_blocked::Unit::kPlain) return true;  // for tests
  if (r.kernel_h() != 3 || r.kernel_w() != 3) return false;
  const bool to_input = spec.pass == ConvPass::kBackwardX;
  using Square = Taps<3, 3>;
  const Tiles tiles(r.batchsize, to_input ? r.height() : r.conv_height(),
                    to_input ? r.width() : r.conv_width(), Square::kOutDown, Square::kOutAcross);
  return std::min(r.in_channels, r.out_channels) >= kChannels &&
         tiles.count >= (spec.pass == ConvPass::kBackwardW ? kTiles / 4 : kTiles);
}

namespace {

constexpr const char* kSlower = "the direct method is faster here";

PlanPtr FasterPlan(const ConvSpec& spec) {
  return PartsPay(spec) ? MakePartsPlan(spec, parts_product::UnitInUse()) : MakePlan(spec);
}

/// Candidates for the present layouts and for each layout that the method supports.
std::vector<Candidate> Candidates(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  std::vector<LayoutPtr> x, y;
  if (!spec.plain) {
    x = LaneLayouts(r.input_shape(), spec.dtype);
    y = LaneLayouts(r.output_shape(), spec.dtype);
  }
  const std::string slower = Pays(spec) ? "" : kSlower;
  std::vector<Candidate> found;
  for (size_t i = 0; i <= x.size(); ++i) {
    ConvSpec wanted = spec;
    if (i > 0) wanted.x_layout = x[i - 1], wanted.dy_layout = y[i - 1];
    const PlanPtr plan = FasterPlan(wanted);
    const std::string name = "winograd " + LayoutName(plan->input_layout(0));
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Candidate& other) { return other.name == name; });
    if (!known) found.push_back({name, [plan] { return plan; }, 0, slower});
  }
  return found;
}

}  // namespace
}  // namespace singa::cpu::winograd

namespace singa::cpu {

SINGA_KERNELS(cpu) {
  Register<ConvSpec>(DeviceKind::kCpu, "winograd",
                     {.refuses = [](const ConvSpec& spec) { return winograd::Refuses(spec); },
                      .make = [](const ConvSpec& spec) -> PlanOrReason {
                        if (!winograd::Pays(spec)) return PlanOrReason::None(winograd::kSlower);
                        return winograd::FasterPlan(spec);
                      },
                      .candidates = winograd::Candidates,
                      .priority = 1});
}

}  // namespace singa::cpu
