// Forward and input gradient: result[pixel][image][to] = Σ over taps and channels of source[pixel
// under the tap][image][from] · W[tap][from][to]. Forward computes y from x, backward dx from dy;
// they differ only in the pixels that taps connect.
//
// The source is packed once, which is cheap since images are small: channels are contiguous
// already, and images become neighbours. Filters are tiles in the layouts OIhw16i16o2i, which
// weight gradients have, and OIhw16o16i2o.

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/cpu/batch_blocked/convolution.h"
#include "backend/cpu/batch_blocked/packing.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/round_up.h"
#include "singa/core/half.h"

namespace singa::cpu::batch_blocked {
namespace {

constexpr int64_t kBlock = 2 * kSide;  // images, and result channels, of a product

/// The taps that a result reads along one axis, and the source pixels under them.
struct Reach {
  int64_t count, tap, tap_step, source, source_step;
};

/// In forward, output `at` reads source at · stride − pad + tap · dilation. In backward, input `at`
/// reads the outputs that read it in forward.
Reach ReachOf(bool backward, int64_t at, int64_t taps, int64_t stride, int64_t dilation,
              int64_t pad, int64_t sources) {
  Reach reach = {0, 0, 1, 0, 0};
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t source = at * stride - pad + tap * dilation;
    if (backward) {
      const int64_t before = at + pad - tap * dilation;
      if (before < 0 || before % stride != 0) continue;
      source = before / stride;
    }
    if (source < 0 || source >= sources) continue;
    if (reach.count == 0) reach.tap = tap, reach.source = source;
    if (reach.count == 1)
      reach.tap_step = tap - reach.tap, reach.source_step = source - reach.source;
    ++reach.count;
  }
  return reach;
}

class SmallImagesPlan final : public Plan {
 public:
  SmallImagesPlan(const ConvSpec& spec, Unit unit, LaneTag tag)
      : Plan("tiles"),
        unit_(unit),
        threads_(std::max(spec.threads, 1)),
        backward_(spec.pass == ConvPass::kBackwardX),
        bias_(spec.geometry.bias && !backward_),
        from_shape_(backward_ ? spec.geometry.output_shape() : spec.geometry.input_shape()),
        to_shape_(backward_ ? spec.geometry.input_shape() : spec.geometry.output_shape()),
        from_layout_(LaneLayout(from_shape_, spec.dtype, tag)),
        to_layout_(LaneLayout(to_shape_, spec.dtype, tag)),
        weights_layout_(WeightsLayout(spec.geometry.weight_shape())),
        from_(from_shape_, tag),
        to_(to_shape_, tag),
        channels_last_(tag == LaneTag::kNhwc),
        taps_(spec.geometry.kernel_h() * spec.geometry.kernel_w()),
        taps_across_(spec.geometry.kernel_w()),
        image_groups_((from_.images + kSide - 1) / kSide),
        depth_((from_.channels + kDepth - 1) / kDepth),
        to_groups_((to_.channels + kSide - 1) / kSide),
        weights_depth_step_(backward_ ? to_groups_ * taps_ : taps_),
        weights_group_step_(backward_ ? taps_ : depth_ * taps_) {
    const Recorder& r = spec.geometry;
    for (int64_t h = 0; h < to_.height; ++h)
      down_.push_back(ReachOf(backward_, h, r.kernel_h(), r.stride_h(), r.dilation_h(), r.pad_top(),
                              from_.height));
    for (int64_t w = 0; w < to_.width; ++w)
      across_.push_back(ReachOf(backward_, w, r.kernel_w(), r.stride_w(), r.dilation_w(),
                                r.pad_left(), from_.width));
  }

  std::string Describe() const override { return std::string("tiles ") + NameOf(unit_); }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 ? from_layout_ : i == 1 ? weights_layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? to_layout_ : nullptr; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(image_groups_ * group_size()) * sizeof(BFloat16);
  }

  void Run(const Execution& execution) const override {
    const auto* from = execution.in<BFloat16>(0);
    const auto* weights = execution.in<BFloat16>(1);
    const auto* bias = bias_ ? execution.in<BFloat16>(2) : nullptr;
    auto* packed = static_cast<BFloat16*>(execution.workspace);
    auto* to = execution.out<BFloat16>(0);
    ParallelFor(image_groups_ * from_.height, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        PackRow(from, task / from_.height, task % from_.height, packed);
    });
    // Each thread takes some images, whose pixels stay in its caches while it reads all filters.
    // With too few images, each thread takes some filters instead.
    const int64_t images = (image_groups_ + 1) / 2, blocks = (to_groups_ + 1) / 2;
    const bool by_images = images >= threads_;
    const int64_t shared = by_images ? images : blocks;
    const int64_t pieces = std::min<int64_t>(threads_, shared);
    ParallelFor(pieces, 1, [&](int64_t begin, int64_t end) {
      const Session session(unit_);
      const int64_t first = shared * begin / pieces, last = shared * end / pieces;
      for (int64_t o = by_images ? 0 : first; o < (by_images ? blocks : last); ++o)
        for (int64_t i = by_images ? first : 0; i < (by_images ? last : images); ++i)
          for (int64_t h = 0; h < to_.height; ++h)
            for (int64_t w = 0; w < to_.width; ++w) Result(packed, weights, bias, i, o, h, w, to);
    });
  }

 private:
  LayoutPtr WeightsLayout(const Shape& weights) const {
    const int out = 0, in = 1;
    const Placement placement =
        backward_ ? Placement::Of(weights, {0, 1, 2, 3}, {{out, 16}, {in, 16}, {out, 2}})
                  : Placement::Of(weights, {0, 1, 2, 3}, {{in, 16}, {out, 16}, {in, 2}});
    return MakeBlockedLayout(placement, kBFloat16, "oihw");
  }

  int64_t pixels() const { return from_.height * from_.width; }
  /// Elements of 16 packed images: [32 channels][pixel] tiles.
  int64_t group_size() const { return depth_ * pixels() * kTile; }
  int64_t group_step(const Lanes& lanes) const { return channels_last_ ? kSide : lanes.block_step; }

  void PackRow(const BFloat16* from, int64_t group, int64_t row, BFloat16* packed) const {
    const int64_t image = group * kSide;
    const Pixels pixels_of_row = {from + image * from_.image_step + row * from_.row_step,
                                  std::min(kSide, from_.images - image),
                                  from_.image_step,
                                  from_.width,
                                  from_.column_step,
                                  from_.channels,
                                  group_step(from_),
                                  channels_last_};
    PackImages(pixels_of_row, packed + group * group_size() + row * from_.width * kTile,
               pixels() * kTile);
  }

  /// Computes one pixel of 32 images and 32 channels.
  void Result(const BFloat16* packed, const BFloat16* weights, const BFloat16* bias, int64_t i,
              int64_t o, int64_t h, int64_t w, BFloat16* to) const {
    const Reach &down = down_[static_cast<size_t>(h)], &across = across_[static_cast<size_t>(w)];
    const Walk walk = {down.count > 0 && across.count > 0 ? depth_ : 0,
                       down.count,
                       across.count,
                       {pixels(), down.source_step * from_.width, across.source_step},
                       {weights_depth_step_, down.tap_step * taps_across_, across.tap_step}};
    const Factor left = {
        packed + 2 * i * group_size() + (down.source * from_.width + across.source) * kTile,
        group_size(), std::min<int64_t>(2, image_groups_ - 2 * i)};
    const int64_t tap = down.tap * taps_across_ + across.tap;
    const Factor right = {weights + (2 * o * weights_group_step_ + tap) * kTile,
                          weights_group_step_ * kTile, std::min<int64_t>(2, to_groups_ - 2 * o)};
    alignas(64) float sums[4 * kSums];
    Multiply(unit_, walk, left, right, sums, false);
    const int64_t channel = o * kBlock, image = i * kBlock;
    StoreImages(sums, bias ? bias + channel : nullptr,
                {std::min(kBlock, to_.images - image), to_.image_step,
                 std::min(kBlock, to_.channels - channel), group_step(to_), channels_last_},
                to + image * to_.image_step + 2 * o * group_step(to_) + h * to_.row_step +
                    w * to_.column_step);
  }

  Unit unit_;
  int threads_;
  bool backward_, bias_;
  Shape from_shape_, to_shape_;
  LayoutPtr from_layout_, to_layout_, weights_layout_;
  Lanes from_, to_;
  bool channels_last_;
  int64_t taps_, taps_across_, image_groups_, depth_, to_groups_;
  // Steps in tiles: between 32 channels of the source, and between 16 channels of the result.
  int64_t weights_depth_step_, weights_group_step_;
  std::vector<Reach> down_, across_;
};

}  // namespace

PlanPtr MakeSmallImages(const ConvSpec& spec, Unit unit) {
  return std::make_shared<SmallImagesPlan>(spec, unit, TagFor(spec));
}

}  // namespace singa::cpu::batch_blocked
