// Depthwise convolutions of an image that is made where it is read: the result of a convolution
// with 1 x 1 filters and of an activation, of which only the rows of a window are held, in the
// caches.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "backend/cpu/depthwise/convolution.h"
#include "backend/cpu/depthwise/images.h"
#include "backend/cpu/pointwise/convolution.h"
#include "core/device/cache_size.h"
#include "core/device/parallel.h"
#include "model/formula/activation.h"

namespace singa::cpu::depthwise {
namespace {

constexpr int64_t kNear = int64_t{32} << 10;  // bytes that stay in the nearest cache
constexpr int64_t kAhead = 4096;              // floats of filters that are fetched ahead
/// Multiply-adds below which a second thread would begin when the first one ends.
constexpr int64_t kWorthThreads = int64_t{1} << 18;

class ExpandedPlan final : public Plan {
 public:
  ExpandedPlan(const ExpandConvSpec& spec, const Loops<float>& loops,
               const pointwise::Loops& expand, LaneTag x_tag, LaneTag y_tag)
      : Plan("depthwise"),
        spec_(spec),
        loops_(loops),
        expand_(expand),
        lanes_(expand.lanes),
        x_(spec.x_shape(), x_tag),
        y_(spec.geometry.output_shape(), y_tag),
        x_layout_(LaneLayout(spec.x_shape(), spec.dtype, x_tag)),
        y_layout_(LaneLayout(spec.geometry.output_shape(), spec.dtype, y_tag)),
        w_layout_(LayoutOfFilters(spec, lanes_)),
        expand_layout_(pointwise::FilterLayout(spec.Inner(), lanes_)),
        down_(spec.geometry, false),
        across_(spec.geometry, false, false),
        in_blocks_(CeilDivide(x_.channels, lanes_)),
        vectors_(CeilDivide(y_.channels, lanes_)),
        copies_(x_tag == LaneTag::kNhwc),
        rows_(RowsOfTile()),
        held_(std::min(down_.Held(1) + rows_ - 1, x_.height)) {
    const int64_t pixels = rows_ * across_.count, tiles = CeilDivide(pixels, expand.pixels);
    width_ = std::max<int64_t>(CeilDivide(pixels, std::max<int64_t>(tiles, 1)), 1);
    // A panel has whole tiles of results, and its rows stay in the nearest cache where they fit.
    const int64_t unit = std::min(expand.tiles[width_ - 1].results, vectors_);
    const int64_t units = CeilDivide(vectors_, unit);
    const int64_t bytes = unit * held_ * vector_step() * static_cast<int64_t>(sizeof(float));
    const int64_t most = std::max<int64_t>(kNear / bytes, 1);
    threads_ = spec.multiply_adds() < kWorthThreads ? 1 : std::max(spec.threads, 1);
    panels_ = std::min(RoundUp(CeilDivide(units, most), threads_), units);
    panel_ = CeilDivide(units, panels_) * unit;
    panels_ = CeilDivide(vectors_, panel_);
    // Parts of an image read the rows between them twice.
    parts_ = std::clamp<int64_t>(threads_ / (y_.images * panels_), 1,
                                 std::max<int64_t>(y_.height / 8, 1));
  }

  std::string Describe() const override {
    return "pointwise" + ActivationSuffix(spec_.front) + " + depthwise" +
           ActivationSuffix(spec_.activation);
  }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0                      ? x_layout_
           : i == 1                    ? w_layout_
           : i == spec_.expand_input() ? expand_layout_
                                       : nullptr;
  }
  LayoutPtr output_layout(size_t) const override { return y_layout_; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(2 * vectors_ * lanes_ + threads_ * own_size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    auto* bias = static_cast<float*>(execution.workspace);
    float *expand_bias = bias + vectors_ * lanes_, *own = expand_bias + vectors_ * lanes_;
    const size_t at = spec_.expand_input();
    CopyBias(spec_.geometry.bias ? execution.in<float>(2) : nullptr, bias);
    CopyBias(spec_.has_shift ? execution.in<float>(at + 1) : nullptr, expand_bias);
    const Call call{
        execution.in<float>(0), execution.in<float>(1), bias, execution.in<float>(at), expand_bias,
        execution.out<float>(0)};
    ParallelItems(y_.images * panels_ * parts_, threads_, [&](Items& items) {
      float* window = own + items.thread() * own_size();
      std::fill_n(window, window_size(), 0.0f);  // beside the rows there are zeros
      for (const int64_t i : items)
        RunPart(call, i / (panels_ * parts_), i / parts_ % panels_, i % parts_, window);
    });
  }

 private:
  struct Call {
    const float *x, *w, *bias, *expand_w, *expand_bias;
    float* y;
  };

  /// Channels of the last vector.
  int64_t LastLanes() const { return y_.channels - (vectors_ - 1) * lanes_; }
  int64_t vector_step() const { return across_.columns * lanes_; }
  int64_t row_step() const { return panel_ * vector_step(); }
  int64_t window_size() const { return held_ * row_step(); }
  int64_t copy_size() const { return copies_ ? in_blocks_ * width_ * lanes_ : 0; }
  /// Room for the sums of any tile.
  int64_t stage_size() const { return rows_ > 1 ? 2 * expand_.pixels * lanes_ : 0; }
  int64_t own_size() const { return window_size() + copy_size() + stage_size(); }  // of a thread
  int64_t weights_size() const {                                                   // of a vector
    return spec_.geometry.kernel_h() * spec_.geometry.kernel_w() * lanes_;
  }
  int64_t expand_step() const { return in_blocks_ * lanes_ * lanes_; }  // between vectors

  /// Whole rows that are expanded together: several ones where those of narrow images leave
  /// registers unused.
  int64_t RowsOfTile() const {
    const auto sums = [&](int64_t pixels) { return pixels * expand_.tiles[pixels - 1].results; };
    const int64_t width = x_.width;
    if (width > expand_.pixels / 2 || across_.count != width) return 1;
    int64_t best = 1;
    for (int64_t rows = 2; rows <= std::min(expand_.pixels / width, x_.height); ++rows)
      if (sums(rows * width) > sums(best * width)) best = rows;
    return best;
  }

  /// Without a bias, or a channel, zeros.
  void CopyBias(const float* from, float* to) const {
    const int64_t count = from ? y_.channels : 0;
    if (from) std::copy_n(from, count, to);
    std::fill_n(to + count, vectors_ * lanes_ - count, 0.0f);
  }

  /// Computes a part of the rows of a panel of an image.
  void RunPart(const Call& call, int64_t image, int64_t panel, int64_t part, float* window) const {
    const int64_t first = panel * panel_, count = std::min(panel_, vectors_ - first);
    const int64_t begin = y_.height * part / parts_, end = y_.height * (part + 1) / parts_;
    // Lanes without a channel are not written. Others have been there.
    if (first + count == vectors_ && LastLanes() < lanes_) std::fill_n(window, window_size(), 0.0f);
    std::array<const float*, kMostRows> sources, weights;
    int64_t next = 0;  // row of the expanded image
    bool far = vectors_ * expand_step() * static_cast<int64_t>(sizeof(float)) > kNear;
    for (int64_t row = begin; row < end; ++row) {
      const Down::Range rows = down_.Of(row);
      for (next = std::max(next, rows.first); next <= rows.last; next += rows_) {
        Expand(call, image, {first, count}, next, far ? kAhead : 0, window);
        far = false;
      }
      size_t taps = 0;
      for (int64_t tap = 0; tap < down_.taps; ++tap) {
        const int64_t source = down_.Row(row, tap);
        if (source < 0) continue;
        sources[taps] = window + source % held_ * row_step();
        weights[taps++] =
            call.w + first * weights_size() + tap * spec_.geometry.kernel_w() * lanes_;
      }
      for (int64_t v = 0; v < count; ++v) {
        Convolve(call, image, row, first + v, taps, sources.data(), weights.data());
        for (size_t i = 0; i < taps; ++i) sources[i] += vector_step(), weights[i] += weights_size();
      }
    }
  }

  struct Vectors {
    int64_t first, count;
  };

  /// Writes rows of the expanded image from `row` on to the window.
  void Expand(const Call& call, int64_t image, const Vectors& panel, int64_t row, int64_t ahead,
              float* window) const {
    float* to = window + row % held_ * row_step() + across_.place * lanes_;
    const int64_t from = image * x_.image_step + row * x_.row_step + across_.first * x_.column_step;
    const int64_t all = std::min(rows_, x_.height - row) * across_.count;
    for (int64_t done = 0; done < all; done += width_) {
      const int64_t pixels = std::min(width_, all - done);
      const float* x = call.x + from + done * x_.column_step;
      float* copy = window + window_size();
      if (copies_) expand_.copy(x, x_.column_step, pixels, x_.channels, copy, width_ * lanes_);
      pointwise::TileCall tile = {.x = copies_ ? copy : x,
                                  .channels = x_.channels,
                                  .block_step = copies_ ? width_ * lanes_ : x_.block_step,
                                  .w = nullptr,
                                  .w_step = expand_step(),
                                  .ahead = ahead,
                                  .bias = nullptr,
                                  .add = nullptr,
                                  .y = nullptr,
                                  .y_step = rows_ > 1 ? pixels * lanes_ : vector_step(),
                                  .pixel_step = lanes_,
                                  .blocks = 0,
                                  .last = 0,
                                  .after = spec_.front};
      float* stage = copy + copy_size();
      const pointwise::Loop& loop = expand_.tiles[pixels - 1];
      for (int64_t v = 0; v < panel.count; v += loop.results) {
        const int64_t first = panel.first + v;
        tile.blocks = std::min(loop.results, panel.count - v);
        tile.last = first + tile.blocks == vectors_ ? LastLanes() : lanes_;
        tile.w = call.expand_w + first * expand_step();
        tile.bias = call.expand_bias + first * lanes_;
        tile.y = rows_ > 1 ? stage : to + done * lanes_ + v * vector_step();
        if (rows_ > 1 && tile.last < lanes_) std::fill_n(stage, stage_size(), 0.0f);
        loop.run(tile);
        if (rows_ > 1) Spread(stage, tile.blocks, row + done / across_.count, pixels, v, window);
      }
    }
  }

  /// Copies rows of some vectors, from vector v of the panel on, to their places in the window.
  void Spread(const float* stage, int64_t vectors, int64_t row, int64_t pixels, int64_t v,
              float* window) const {
    const int64_t count = across_.count;
    for (int64_t i = 0; i < vectors; ++i, stage += pixels * lanes_)
      for (int64_t r = 0; r * count < pixels; ++r)
        std::copy_n(stage + r * count * lanes_, count * lanes_,
                    window + (row + r) % held_ * row_step() + (v + i) * vector_step() +
                        across_.place * lanes_);
  }

  /// Computes a row of results of a vector.
  void Convolve(const Call& call, int64_t image, int64_t row, int64_t vector, size_t taps,
                const float* const* sources, const float* const* weights) const {
    const int64_t channel = vector * lanes_;
    const int64_t place = y_.lanes == lanes_ ? vector * y_.block_step : channel;
    loops_.forward(
        {.panel = {1, y_.lanes == lanes_ ? lanes_ : std::min(lanes_, y_.channels - channel)},
         .tiles = across_.tiles,
         .terms = 1,
         .rows = static_cast<int64_t>(taps),
         .sources = sources,
         .weights = weights,
         .source_step = 0,
         .weight_step = 0,
         .bias = call.bias + channel,
         .add = nullptr,
         .after = spec_.activation,
         .stream = false,
         .to = call.y + image * y_.image_step + place + row * y_.row_step,
         .columns = y_.width,
         .column_step = y_.column_step,
         .skipped = 0,
         .next = {nullptr, 0}});
  }

  const ExpandConvSpec spec_;
  const Loops<float> loops_;
  const pointwise::Loops expand_;
  const int64_t lanes_;
  const Lanes x_, y_;
  const LayoutPtr x_layout_, y_layout_, w_layout_, expand_layout_;
  const Down down_;
  const Across across_;
  const int64_t in_blocks_, vectors_;  // of channels
  const bool copies_;
  const int64_t rows_, held_;       // of a tile, and of the window
  int64_t width_;                   // pixels of a tile
  int64_t panel_, panels_, parts_;  // vectors of a panel, panels, parts of the rows
  int64_t threads_;
};

}  // namespace

std::string Refuses(const ExpandConvSpec& spec, int64_t lanes) {
  if (spec.dtype != kFloat32 || !spec.constant_weights)
    return "images are expanded in float32, in inference";
  const pointwise::Loops expand = pointwise::LoopsOf(lanes);
  if (expand.lanes == 0 || expand.lanes != lanes) return "there are no loops for 1 x 1 filters";
  if (spec.geometry.group != spec.geometry.in_channels)
    return "images are expanded in front of filters of single channels";
  if (!formula::KeepsZero(spec.front))
    return "the activation of zero, which fills up vectors, is not zero";
  if (std::string reason = pointwise::Refuses(spec.Inner(), expand); !reason.empty()) return reason;
  return Refuses(static_cast<const ConvSpec&>(spec), lanes);
}

PlanPtr MakePlan(const ExpandConvSpec& spec, int64_t lanes) {
  const ConvSpec inner = spec.Inner();
  const LaneTag x = *pointwise::TagOfX(inner, lanes);
  return std::make_shared<ExpandedPlan>(spec, LoopsOfChannels(spec, lanes),
                                        pointwise::LoopsOf(lanes), x,
                                        pointwise::TagOfY(inner, x, lanes));
}

}  // namespace singa::cpu::depthwise
