#include "backend/cpu/pointwise/convolution.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/activation.h"

namespace singa::cpu::pointwise {

Loops LoopsOf(int64_t lanes) {
#if defined(__x86_64__)
  return lanes == 16 ? LoopsAvx512() : lanes == 8 ? LoopsAvx2() : Loops();
#elif defined(__aarch64__)
  return lanes == 8 ? LoopsNeon() : Loops();
#else
  return {};
#endif
}

Loops BestLoops() { return LoopsOf(VectorLanes()); }

namespace {

/// Multiply-adds below which a second thread would begin when the first one ends.
constexpr int64_t kWorthThreads = int64_t{1} << 18;
constexpr int64_t kNear = int64_t{32} << 10;  // bytes of filters that stay in the nearest cache
constexpr int64_t kAhead = 2048;              // floats

LaneTag BlockedTag(int64_t lanes) { return lanes == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c; }

/// Whether blocks of channels would be largely empty.
bool IsNarrow(int64_t channels, int64_t lanes) {
  return RoundUp(channels, lanes) * 100 > channels * 115;
}

}  // namespace

std::optional<LaneTag> TagOfX(const ConvSpec& spec, int64_t lanes) {
  const Shape shape = spec.geometry.input_shape();
  if (!spec.x_layout && spec.geometry.pixels() == 1) return LaneTag::kNhwc;
  const auto tag = LaneTagOf(spec.x_layout, shape, spec.dtype);
  return tag == LaneTag::kNhwc || tag == BlockedTag(lanes) ? tag : std::nullopt;
}

/// That of x, unless blocks would be largely empty, or only those of x are and no results' are.
LaneTag TagOfY(const ConvSpec& spec, LaneTag x, int64_t lanes) {
  const Recorder& r = spec.geometry;
  if ((r.pixels() == 1 && !spec.x_layout) || IsNarrow(r.out_channels, lanes)) return LaneTag::kNhwc;
  return IsNarrow(r.in_channels, lanes) && r.out_channels % lanes == 0 ? BlockedTag(lanes) : x;
}

LayoutPtr FilterLayout(const ConvSpec& spec, int64_t lanes) {
  const Shape shape = spec.geometry.weight_shape();
  std::vector<int> axes;
  for (int axis = 0; axis < shape.rank(); ++axis) axes.push_back(axis);
  return MakeBlockedLayout(Placement::Of(shape, axes, {{1, lanes}, {0, lanes}}), spec.dtype,
                           spec.geometry.spatial == 1 ? "oiw" : "oihw");
}

namespace {

class PointwisePlan final : public Plan {
 public:
  PointwisePlan(const ConvSpec& spec, const Loops& loops, LaneTag x_tag, LaneTag y_tag)
      : Plan("pointwise"),
        spec_(spec),
        loops_(loops),
        x_(spec.geometry.input_shape(), x_tag),
        y_(spec.geometry.output_shape(), y_tag),
        x_layout_(LaneLayout(spec.geometry.input_shape(), spec.dtype, x_tag)),
        y_layout_(LaneLayout(spec.geometry.output_shape(), spec.dtype, y_tag)),
        w_layout_(FilterLayout(spec, loops.lanes)),
        in_blocks_(CeilDivide(x_.channels, loops.lanes)),
        blocks_(CeilDivide(y_.channels, loops.lanes)) {
    const Recorder& r = spec.geometry;
    strided_ = r.stride_h() > 1 || r.stride_w() > 1;
    const bool channels_last = x_tag == LaneTag::kNhwc;
    joined_ = channels_last && y_tag == LaneTag::kNhwc && !strided_;  // images are one
    images_ = joined_ ? 1 : x_.images;
    pixels_ = (joined_ ? x_.images : 1) * y_.height * y_.width;
    const int64_t count = CeilDivide(pixels_, loops.pixels);
    width_ = CeilDivide(pixels_, count);
    tiles_ = CeilDivide(pixels_, width_);
    copies_ = strided_ || (channels_last && width_ > 1);
    // The larger one of filters and pixels is read once, the other one again and again.
    by_filter_ = !copies_ && y_.channels > images_ * pixels_;
    // Filters come from a far cache or memory, each once, faster than processors fetch by
    // themselves.
    ahead_ = blocks_ * w_step() * int64_t{sizeof(float)} < kNear ? 0 : kAhead;
    const int64_t work = images_ * pixels_ * x_.channels * y_.channels;
    threads_ = work < kWorthThreads ? 1 : std::max(spec.threads, 1);
  }

  std::string Describe() const override {
    return std::string("pointwise") + (spec_.has_add ? " + add" : "") +
           ActivationSuffix(spec_.activation);
  }
  LayoutPtr input_layout(size_t i) const override {
    if (i == 0) return x_layout_;
    if (i == 1) return w_layout_;
    return spec_.has_add && i == spec_.add_input() ? y_layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t) const override { return y_layout_; }
  int inplace_input(size_t) const override {
    return spec_.has_add ? static_cast<int>(spec_.add_input()) : -1;
  }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(bias_size() + threads_ * copy_size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    auto* bias = static_cast<float*>(execution.workspace);
    const bool has_bias = spec_.geometry.bias;
    if (has_bias) std::copy_n(execution.in<float>(2), y_.channels, bias);
    std::fill(bias + (has_bias ? y_.channels : 0), bias + bias_size(), 0.0f);
    const Call call{execution.in<float>(0), execution.in<float>(1), bias,
                    spec_.has_add ? execution.in<float>(spec_.add_input()) : nullptr,
                    execution.out<float>(0)};
    ForEachThread(static_cast<int>(threads_), [&](int64_t thread) {
      float* copy = bias + bias_size() + thread * copy_size();
      by_filter_ ? RunByFilter(call, thread) : RunByTile(call, thread, copy);
    });
  }

 private:
  struct Call {
    const float *x, *w, *bias, *add;
    float* y;
  };

  int64_t bias_size() const { return blocks_ * loops_.lanes; }
  int64_t copy_size() const { return copies_ ? in_blocks_ * copy_step() : 0; }
  int64_t copy_step() const { return width_ * loops_.lanes; }

  /// Tiles one after the other; each thread takes as many blocks of their results.
  void RunByTile(const Call& call, int64_t thread, float* copy) const {
    const int64_t all = images_ * tiles_ * blocks_;
    const int64_t end = all * (thread + 1) / threads_;
    for (int64_t at = all * thread / threads_; at < end;) {
      const int64_t tile = at / blocks_, first = at % blocks_;
      const int64_t count = std::min(blocks_ - first, end - at);
      if (copies_) Copy(call.x, tile, copy);
      RunTile(call, tile, copy, first, first + count);
      at += count;
    }
  }

  /// Filters one after the other, each with all tiles.
  void RunByFilter(const Call& call, int64_t thread) const {
    const int64_t step = loops_.tiles[CountOf(tiles_ - 1) - 1].results, tiles = images_ * tiles_;
    const int64_t all = CeilDivide(blocks_, step) * tiles;
    const int64_t end = all * (thread + 1) / threads_;
    for (int64_t at = all * thread / threads_; at < end; ++at) {
      const int64_t first = at / tiles * step;
      RunTile(call, at % tiles, nullptr, first, std::min(first + step, blocks_));
    }
  }

  /// Pixels of a tile: the first one, and how many there are.
  int64_t FirstOf(int64_t tile) const { return tile % tiles_ * width_; }
  int64_t CountOf(int64_t tile) const { return std::min(width_, pixels_ - FirstOf(tile)); }

  /// Copies the pixels of a tile to blocks of channels.
  void Copy(const float* x, int64_t tile, float* copy) const {
    const Recorder& r = spec_.geometry;
    const float* image = x + (joined_ ? 0 : tile / tiles_ * x_.image_step);
    const int64_t lanes = loops_.lanes, count = CountOf(tile);
    for (int64_t done = 0; done < count;) {
      const int64_t pixel = FirstOf(tile) + done;
      int64_t run = count - done, from = pixel * x_.column_step, step = x_.column_step;
      if (strided_) {  // up to the end of the row
        const int64_t row = pixel / y_.width, column = pixel % y_.width;
        run = std::min(run, y_.width - column);
        from = row * r.stride_h() * x_.row_step + column * r.stride_w() * x_.column_step;
        step *= r.stride_w();
      }
      for (int64_t b = 0; b < x_.blocks; ++b)
        loops_.copy(image + b * x_.block_step + from, step, run, x_.lanes,
                    copy + b * (x_.lanes / lanes) * copy_step() + done * lanes, copy_step());
      done += run;
    }
  }

  /// Computes blocks [first, end) of the results of a tile.
  void RunTile(const Call& call, int64_t tile, const float* copy, int64_t first,
               int64_t end) const {
    const int64_t lanes = loops_.lanes, image = tile / tiles_, pixel = FirstOf(tile);
    const Loop& loop = loops_.tiles[CountOf(tile) - 1];
    const bool blocked = y_.blocks > 1 || y_.lanes == lanes;
    const int64_t y_step = blocked ? y_.block_step : lanes;
    const int64_t at = (joined_ ? 0 : image * y_.image_step) + pixel * y_.column_step;
    const int64_t from = (joined_ ? 0 : image * x_.image_step) + pixel * x_.column_step;
    const int64_t last = y_.channels - (blocks_ - 1) * lanes;
    for (int64_t block = first; block < end; block += loop.results) {
      const int64_t count = std::min(loop.results, end - block);
      const int64_t place = at + block * y_step;
      loop.run({.x = copies_ ? copy : call.x + from,
                .channels = x_.channels,
                .block_step = copies_             ? copy_step()
                              : x_.lanes == lanes ? x_.block_step
                                                  : lanes,
                .w = call.w + block * w_step(),
                .w_step = w_step(),
                .ahead = ahead_,
                .bias = call.bias + block * lanes,
                .add = call.add ? call.add + place : nullptr,
                .y = call.y + place,
                .y_step = y_step,
                .pixel_step = y_.column_step,
                .blocks = count,
                .last = block + count == blocks_ ? last : lanes,
                .pads = blocked,
                .after = spec_.activation});
    }
  }
  int64_t w_step() const { return in_blocks_ * loops_.lanes * loops_.lanes; }

  const ConvSpec spec_;
  const Loops loops_;
  const Lanes x_, y_;
  const LayoutPtr x_layout_, y_layout_, w_layout_;
  const int64_t in_blocks_, blocks_;  // of channels
  bool strided_, joined_, copies_, by_filter_;
  int64_t images_, pixels_, width_, tiles_;  // of an image; `width_` pixels in a tile
  int64_t ahead_, threads_;
};

}  // namespace

std::string Refuses(const ConvSpec& spec, const Loops& loops) {
  const Recorder& r = spec.geometry;
  if (loops.lanes == 0) return "loops for 1 x 1 filters are for CPUs with AVX2 or NEON";
  if (spec.pass != ConvPass::kForward || !spec.constant_weights)
    return "loops for 1 x 1 filters are for inference";
  if (spec.dtype != kFloat32) return "loops for 1 x 1 filters are for float32";
  if (spec.plain) return "loops for 1 x 1 filters are for channels-last and blocked images";
  if (r.spatial == 3) return "loops for 1 x 1 filters are for one or two dimensions";
  if (r.group != 1 || r.taps() != 1) return "the filters are not 1 x 1, or there are groups";
  if (std::max({r.pad_top(), r.pad_bottom(), r.pad_left(), r.pad_right()}) > 0)
    return "loops for 1 x 1 filters are for images without padding";
  if (r.input_shape().Count() == 0 || r.output_shape().Count() == 0)
    return "there is nothing to compute";
  if (!TagOfX(spec, loops.lanes)) return "x is neither in blocks of a vector nor channels-last";
  return "";
}

PlanPtr MakePlan(const ConvSpec& spec, const Loops& loops) {
  const LaneTag x = *TagOfX(spec, loops.lanes);
  return std::make_shared<PointwisePlan>(spec, loops, x, TagOfY(spec, x, loops.lanes));
}

}  // namespace singa::cpu::pointwise
