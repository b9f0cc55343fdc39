// Weight gradient: dW[tap][in][out] = Σ over images and pixels of x[pixel under the tap][in] ·
// dy[pixel][out].
//
// A product of tiles sums over 32 images, for one pixel of x and one of dy. A tap shifts x by
// pixels, not by images, so each pixel is packed once for all taps, and pixels outside the image
// are skipped instead of multiplied as zeros.
//
// Rows of pixels are packed chunk by chunk, and multiplied while they are in the caches, in one of
// two ways:
//
// - By slice, if the sums fit in the L2 cache: each thread packs and multiplies slices of the
//   chunks, into separate sums, which are added at the end. The number of slices depends on the
//   geometry alone, so results do not depend on the number of threads.
// - Together: all threads pack a chunk, and each multiplies some blocks of weights. With only one
//   chunk, sums are stored as weights at once.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/batch_blocked/convolution.h"
#include "backend/cpu/batch_blocked/packing.h"
#include "backend/cpu/norm/channel_sums.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/round_up.h"
#include "singa/core/half.h"

namespace singa::cpu::batch_blocked {
namespace {

constexpr int64_t kBlock = 2 * kSide;      // inputs, and outputs, of a product
constexpr int64_t kBlockSums = 4 * kSums;  // sums of a block for one tap
constexpr int64_t kTogetherPixels = 256;   // of a chunk: 16 kB per channel

/// Pixels along one axis: which ones are packed for a range of outputs, and where a tap finds its
/// own.
struct Axis {
  int64_t taps, stride, dilation, pad, in, out;

  struct Range {
    int64_t begin, end;
    int64_t size() const { return std::max<int64_t>(end - begin, 0); }
  };
  struct Packed {
    int64_t first, step;  // in the image: the first packed position, and the step to the next
    int64_t count;
    int64_t origin;  // packed position of output 0 at tap 0
  };

  /// The outputs for which a tap is inside the image.
  Range Outputs(int64_t tap) const {
    const int64_t before = pad - tap * dilation, room = in - 1 + before;
    return {before > 0 ? CeilDivide(before, stride) : 0,
            room < 0 ? 0 : std::min(room / stride + 1, out)};
  }
  /// The positions to pack for a range of outputs: all that their taps cover. With one tap only
  /// those under it.
  Packed Of(Range outputs) const {
    if (taps == 1) {
      const Range there = Outputs(0);
      const Range both = {std::max(outputs.begin, there.begin), std::min(outputs.end, there.end)};
      return {both.begin * stride - pad, stride, both.size(), -both.begin};
    }
    const int64_t begin = std::clamp<int64_t>(outputs.begin * stride - pad, 0, in);
    const int64_t end = (outputs.end - 1) * stride - pad + (taps - 1) * dilation + 1;
    return {begin, 1, std::clamp(end, begin, in) - begin, -pad - begin};
  }
  /// Steps in packed positions: between outputs, and between taps.
  int64_t output_step() const { return taps == 1 ? 1 : stride; }
  int64_t tap_step() const { return taps == 1 ? 0 : dilation; }
};

/// A range of groups of 32 images, and of rows of outputs.
struct Chunk {
  Axis::Range groups, rows;
};

/// A tensor in groups of 16 channels, in its own layout.
struct Source {
  Lanes lanes;
  int64_t groups, group_step;
  bool channels_last;

  Source(const Shape& shape, LaneTag tag)
      : lanes(shape, tag),
        groups(CeilDivide(shape[1], kSide)),
        group_step(tag == LaneTag::kNhwc ? kSide : lanes.block_step),
        channels_last(tag == LaneTag::kNhwc) {}

  Pixels At(const BFloat16* images, int64_t group, int64_t row, int64_t column, int64_t columns,
            int64_t step) const {
    const int64_t first = group * kDepth;
    return {images + first * lanes.image_step + row * lanes.row_step + column * lanes.column_step,
            std::min(kDepth, lanes.images - first),
            lanes.image_step,
            columns,
            step * lanes.column_step,
            lanes.channels,
            group_step,
            channels_last};
  }
};

class WeightGradientPlan final : public Plan {
 public:
  WeightGradientPlan(const ConvSpec& spec, Unit unit, int64_t cache, LaneTag tag)
      : Plan("tiles"),
        unit_(unit),
        cache_(cache),
        threads_(std::max(spec.threads, 1)),
        x_layout_(LaneLayout(spec.geometry.input_shape(), spec.dtype, tag)),
        dy_layout_(LaneLayout(spec.geometry.output_shape(), spec.dtype, tag)),
        dw_layout_(WeightsLayout(spec.geometry.weight_shape())),
        x_(spec.geometry.input_shape(), tag),
        dy_(spec.geometry.output_shape(), tag),
        image_groups_(CeilDivide(spec.geometry.batchsize, kDepth)),
        down_(Down(spec.geometry)),
        across_(Across(spec.geometry)),
        columns_(across_.Of({0, across_.out})),
        chunks_(Chunks()) {
    if (spec.geometry.bias) bias_ = MakeChannelSums(tag, spec.geometry.output_shape(), spec.dtype);
  }

  std::string Describe() const override { return std::string("tiles ") + NameOf(unit_); }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 ? dy_layout_ : i == 1 ? x_layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? dw_layout_ : nullptr; }
  size_t workspace_bytes() const override {
    return OwnBytes() + (bias_ ? bias_->workspace_bytes() : 0);
  }

  void Run(const Execution& execution) const override {
    const Call call{execution.in<BFloat16>(0), execution.in<BFloat16>(1),
                    execution.out<BFloat16>(0), static_cast<BFloat16*>(execution.workspace),
                    reinterpret_cast<float*>(static_cast<BFloat16*>(execution.workspace) +
                                             (slices_ > 0 ? threads_ : 1) * PackedSize())};
    slices_ > 0 ? RunBySlice(call) : RunTogether(call);
    if (!bias_) return;
    bias_->Run({execution.device, execution.inputs.first(1), execution.outputs.subspan(1, 1),
                execution.scalars, static_cast<char*>(execution.workspace) + OwnBytes()});
  }

 private:
  struct Call {
    const BFloat16 *dy, *x;
    BFloat16 *dw, *packed;
    float* sums;
  };

  static Axis Down(const Recorder& r) {
    return {r.kernel_h(), r.stride_h(), r.dilation_h(), r.pad_top(), r.height(), r.conv_height()};
  }
  static Axis Across(const Recorder& r) {
    return {r.kernel_w(), r.stride_w(), r.dilation_w(), r.pad_left(), r.width(), r.conv_width()};
  }
  /// oneDNN's layout of weight gradients, which the readers of the weights know.
  static LayoutPtr WeightsLayout(const Shape& weights) {
    const int out = 0, in = 1;
    return MakeBlockedLayout(Placement::Of(weights, {0, 1, 2, 3}, {{in, 16}, {out, 16}, {in, 2}}),
                             kBFloat16, "oihw");
  }

  int64_t taps() const { return down_.taps * across_.taps; }
  int64_t in_blocks() const { return CeilDivide(x_.groups, 2); }
  int64_t out_blocks() const { return CeilDivide(dy_.groups, 2); }
  int64_t sums_size() const { return in_blocks() * out_blocks() * taps() * kBlockSums; }
  // Packed elements of x, and of x and dy, for the largest chunk.
  int64_t x_size() const { return x_.groups * groups_ * x_rows_ * columns_.count * kTile; }
  int64_t PackedSize() const {
    return x_size() + dy_.groups * groups_ * rows_ * across_.out * kTile;
  }
  size_t OwnBytes() const {
    const int64_t sums = slices_ > 0 ? slices_ : chunks_.size() > 1 ? 1 : 0;
    return static_cast<size_t>((slices_ > 0 ? threads_ : 1) * PackedSize()) * sizeof(BFloat16) +
           static_cast<size_t>(sums * sums_size()) * sizeof(float);
  }

  /// Divides all rows of outputs into chunks, and sets the members that describe the largest one.
  std::vector<Chunk> Chunks() {
    const int64_t bytes = sums_size() * static_cast<int64_t>(sizeof(float));
    const int64_t pixel = (x_.groups + dy_.groups) * kTile * static_cast<int64_t>(sizeof(BFloat16));
    const int64_t image = down_.out * across_.out;
    if (bytes <= cache_ * 3 / 8) {
      std::vector<Chunk> chunks = Cut(cache_ / 2 / pixel);
      const int64_t most = std::clamp<int64_t>((int64_t{4} << 20) / bytes, 4, 16);
      if (chunks.size() >= 4) {
        slices_ = std::min<int64_t>(most, static_cast<int64_t>(chunks.size()));
        return chunks;
      }
    }
    return Cut(image_groups_ * image <= 2 * kTogetherPixels ? 2 * kTogetherPixels
                                                            : kTogetherPixels);
  }
  std::vector<Chunk> Cut(int64_t pixels) {
    const int64_t image = down_.out * across_.out;
    int64_t pieces = 1;  // pieces into which an image's rows are divided
    if (image > pixels) {
      const int64_t rows = std::max<int64_t>(pixels / across_.out, 1);
      pieces = CeilDivide(down_.out, rows);
    }
    const int64_t together = std::clamp<int64_t>(pixels / image, 1, image_groups_);
    std::vector<Chunk> chunks;
    groups_ = together;
    rows_ = x_rows_ = 0;
    for (int64_t g = 0; g < image_groups_; g += together)
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const Axis::Range rows = {down_.out * piece / pieces, down_.out * (piece + 1) / pieces};
        chunks.push_back({{g, std::min(g + together, image_groups_)}, rows});
        rows_ = std::max(rows_, rows.size());
        x_rows_ = std::max(x_rows_, down_.Of(rows).count);
      }
    return chunks;
  }

  void RunBySlice(const Call& call) const {
    const auto chunks = static_cast<int64_t>(chunks_.size());
    ParallelItems(slices_, threads_, [&](Items& items) {
      const Session session(unit_);
      BFloat16* packed = call.packed + items.thread() * PackedSize();
      for (const int64_t s : items) {
        const int64_t first = chunks * s / slices_;
        for (int64_t c = first; c < chunks * (s + 1) / slices_; ++c) {
          const Chunk& chunk = chunks_[static_cast<size_t>(c)];
          for (int64_t task = 0; task < PackTasks(chunk); ++task)
            PackRow(chunk, task, call.x, call.dy, packed);
          for (int64_t i = 0; i < in_blocks(); ++i)
            for (int64_t o = 0; o < out_blocks(); ++o)
              for (int64_t tap = 0; tap < taps(); ++tap)
                MultiplyBlock(chunk, i, o, tap, packed,
                              call.sums + s * sums_size() + SumsOf(i, o, tap), c > first);
        }
      }
    });
    ParallelFor(in_blocks() * out_blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        for (int64_t tap = 0; tap < taps(); ++tap) {
          const int64_t i = block / out_blocks(), o = block % out_blocks();
          float* sums = call.sums + SumsOf(i, o, tap);
          for (int64_t s = 1; s < slices_; ++s) Add(kBlockSums, sums + s * sums_size(), sums);
          StoreBlock(i, o, tap, sums, call.dw);
        }
    });
  }

  void RunTogether(const Call& call) const {
    // `most` blocks of outputs fit in half of the L2 cache.
    const int64_t pixels = groups_ * rows_ * across_.out;
    const int64_t block = 2 * pixels * kTile * static_cast<int64_t>(sizeof(BFloat16));
    const int64_t most = std::max<int64_t>(cache_ / 2 / block, 1);
    const int64_t panels = std::min(
        std::max(CeilDivide(out_blocks(), most), CeilDivide(int64_t{2} * threads_, in_blocks())),
        out_blocks());
    for (const Chunk& chunk : chunks_) {
      ParallelFor(PackTasks(chunk), 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task)
          PackRow(chunk, task, call.x, call.dy, call.packed);
      });
      const bool last = &chunk == &chunks_.back(), first = &chunk == &chunks_.front();
      ParallelFor(panels * in_blocks(), 1, [&](int64_t begin, int64_t end) {
        const Session session(unit_);
        alignas(64) float own[kBlockSums];
        for (int64_t item = begin; item < end; ++item) {
          const int64_t panel = item / in_blocks(), i = item % in_blocks();
          for (int64_t o = out_blocks() * panel / panels; o < out_blocks() * (panel + 1) / panels;
               ++o)
            for (int64_t tap = 0; tap < taps(); ++tap) {
              float* sums = chunks_.size() > 1 ? call.sums + SumsOf(i, o, tap) : own;
              MultiplyBlock(chunk, i, o, tap, call.packed, sums, !first);
              if (last) StoreBlock(i, o, tap, sums, call.dw);
            }
        }
      });
    }
  }

  int64_t SumsOf(int64_t i, int64_t o, int64_t tap) const {
    return ((i * out_blocks() + o) * taps() + tap) * kBlockSums;
  }

  /// Tasks of a chunk: the rows of x and of dy in each group of images.
  int64_t PackTasks(const Chunk& chunk) const {
    return chunk.groups.size() * (down_.Of(chunk.rows).count + chunk.rows.size());
  }
  void PackRow(const Chunk& chunk, int64_t task, const BFloat16* x, const BFloat16* dy,
               BFloat16* packed) const {
    const Axis::Packed rows = down_.Of(chunk.rows);
    const int64_t each = rows.count + chunk.rows.size(), group = task / each, row = task % each;
    const int64_t images = chunk.groups.begin + group;
    if (row < rows.count) {
      const int64_t place = (group * x_rows_ + row) * columns_.count;
      PackLeft(x_.At(x, images, rows.first + row * rows.step, columns_.first, columns_.count,
                     columns_.step),
               packed + place * kTile, groups_ * x_rows_ * columns_.count * kTile);
    } else {
      const int64_t i = row - rows.count, place = (group * rows_ + i) * across_.out;
      PackRight(dy_.At(dy, images, chunk.rows.begin + i, 0, across_.out, 1),
                packed + x_size() + place * kTile, groups_ * rows_ * across_.out * kTile);
    }
  }

  /// Multiplies 32 inputs and 32 outputs at one tap, over the pixels of a chunk.
  void MultiplyBlock(const Chunk& chunk, int64_t i, int64_t o, int64_t tap, const BFloat16* packed,
                     float* sums, bool add) const {
    const int64_t tap_down = tap / across_.taps, tap_across = tap % across_.taps;
    const Axis::Range inside = down_.Outputs(tap_down), columns = across_.Outputs(tap_across);
    const Axis::Range rows = {std::max(inside.begin, chunk.rows.begin),
                              std::min(inside.end, chunk.rows.end)};
    const int64_t row = down_.Of(chunk.rows).origin + rows.begin * down_.output_step() +
                        tap_down * down_.tap_step();
    const int64_t column =
        columns_.origin + columns.begin * across_.output_step() + tap_across * across_.tap_step();
    const Walk walk = {
        chunk.groups.size(),
        rows.size(),
        columns.size(),
        {x_rows_ * columns_.count, columns_.count * down_.output_step(), across_.output_step()},
        {rows_ * across_.out, across_.out, 1}};
    const int64_t left_apart = groups_ * x_rows_ * columns_.count * kTile;
    const int64_t right_apart = groups_ * rows_ * across_.out * kTile;
    const Factor left = {packed + 2 * i * left_apart + (row * columns_.count + column) * kTile,
                         left_apart, std::min<int64_t>(2, x_.groups - 2 * i)};
    const Factor right = {
        packed + x_size() + 2 * o * right_apart +
            ((rows.begin - chunk.rows.begin) * across_.out + columns.begin) * kTile,
        right_apart, std::min<int64_t>(2, dy_.groups - 2 * o)};
    Multiply(unit_, walk, left, right, sums, add);
  }

  void StoreBlock(int64_t i, int64_t o, int64_t tap, const float* sums, BFloat16* dw) const {
    const int64_t step = taps() * kTile;  // between blocks of weights
    StoreWeights(sums, x_.lanes.channels - i * kBlock,
                 std::min(dy_.lanes.channels - o * kBlock, kBlock),
                 dw + (2 * o * in_blocks() + i) * step + tap * kTile, in_blocks() * step);
  }

  Unit unit_;
  int64_t cache_;
  int threads_;
  LayoutPtr x_layout_, dy_layout_, dw_layout_;
  Source x_, dy_;
  int64_t image_groups_;
  Axis down_, across_;
  Axis::Packed columns_;
  // Of the largest chunk: groups of images, rows of dy, and rows of x.
  int64_t groups_ = 0, rows_ = 0, x_rows_ = 0;
  int64_t slices_ = 0;  // 0: together
  std::vector<Chunk> chunks_;
  PlanPtr bias_;
};

}  // namespace

PlanPtr MakeWeightGradient(const ConvSpec& spec, Unit unit, int64_t cache) {
  return std::make_shared<WeightGradientPlan>(spec, unit, cache, TagFor(spec));
}

}  // namespace singa::cpu::batch_blocked
