// Convolutions of stride 1 by Winograd's method, with the filters of WithTaps, in all three passes,
// on the layouts that oneDNN's kernels leave their images in. Filters and their gradients are
// row-major: they are transformed at each call anyway, but for small ones whose weights stay
// (winograd_filter.h).

#include "backend/onednn/winograd.h"

#include <algorithm>
#include <array>

#include "backend/onednn/winograd_filter.h"
#include "backend/onednn/winograd_gemm.h"
#include "backend/onednn/winograd_tiles.h"
#include "core/cache_size.h"
#include "core/parallel.h"
#include "model/operation/kernel.h"
#include "singa/core/plan_cache.h"

namespace singa::onednn::winograd {
namespace {

/// Calls `visit` with the Taps of a filter that the method is for; without one, returns nothing.
template <class Visitor>
auto WithTaps(const Recorder& r, const Visitor& visit) -> decltype(visit(Taps<3, 3>())) {
  const auto is = [&](int64_t down, int64_t across) {
    return r.kernel_h == down && r.kernel_w == across;
  };
  if (is(3, 3)) return visit(Taps<3, 3>());
  if (is(5, 5)) return visit(Taps<5, 5>());
  if (is(1, 3)) return visit(Taps<1, 3>());
  if (is(3, 1)) return visit(Taps<3, 1>());
  if (is(1, 7)) return visit(Taps<1, 7>());
  if (is(7, 1)) return visit(Taps<7, 1>());
  return {};
}

/// Values of tiles at every position: [position][tile][channel], rows a little apart from powers of
/// two, which would fall onto the same lines of the cache.
struct Values {
  Values(int64_t positions, int64_t tiles, int64_t channels, int64_t apart)
      : tile_step(channels + apart),
        position_step(tiles * tile_step + apart),
        size(positions * position_step) {}
  int64_t tile_step, position_step, size;
};

/// About as many tiles as have the values of `tiles` tiles of 6 x 6; whole rows of products.
constexpr int64_t TilesLike(int64_t tiles, int64_t positions) {
  constexpr int64_t kRows = 12;  // a multiple of every kTileRows
  return std::max(tiles * 36 / positions / kRows, int64_t{1}) * kRows;
}

// Products take whole vectors and rows, of which nobody reads what no channel or tile stands for.
// It has to be zero all the same: what lay in that memory before may be subnormal numbers, which
// some processors multiply a hundred times slower.

/// Zeros behind the channels of a tile's values.
template <int64_t kLanes>
void FillVectors(const Image<kLanes>& image, int64_t positions, float* values,
                 int64_t position_step) {
  const int64_t missing = RoundUp(image.channels, kLanes) - image.channels;
  if (!image.channels_last || missing == 0) return;  // blocked images have zeros there
  for (int64_t p = 0; p < positions; ++p)
    std::fill_n(values + p * position_step + image.channels, missing, 0.0f);
}

/// Zeros behind `count` tiles of `depth` channels, up to whole rows of products.
void FillRows(int64_t count, int64_t rows, int64_t depth, int64_t positions, const Values& layout,
              float* values) {
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = count; i < rows; ++i)
      std::fill_n(values + p * layout.position_step + i * layout.tile_step, depth, 0.0f);
}

LayoutPtr LayoutOf(const Shape& shape, LaneTag tag) { return LaneLayout(shape, kFloat32, tag); }

/// The layout that both sides' images will have: as they come, if we can read that.
LaneTag TagFor(const ConvSpec& spec, int64_t lanes) {
  const Recorder& r = spec.geometry;
  const LaneTag blocked = lanes == 16 ? LaneTag::nChw16c : LaneTag::nChw8c;
  const bool channels_last = std::min(r.in_channels, r.out_channels) >= lanes;
  auto readable = [&](std::optional<LaneTag> tag) {
    return tag && (*tag == blocked || (*tag == LaneTag::nhwc && channels_last));
  };
  const auto x = LaneTagOf(spec.x_layout, r.input_shape(), kFloat32);
  if (readable(x)) return *x;
  const auto y = LaneTagOf(spec.dy_layout, r.output_shape(), kFloat32);
  if (readable(y)) return *y;
  return blocked;
}

class WinogradPlan : public Plan {
 public:
  WinogradPlan(const ConvSpec& spec, std::vector<LayoutPtr> inputs, std::vector<LayoutPtr> outputs)
      : Plan("winograd"),
        spec_(spec),
        threads_(std::max(spec.threads, 1)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {}
  std::string Describe() const override {
    const auto by = [](int down, int across) {
      return std::to_string(down) + "x" + std::to_string(across);
    };
    const std::string method = WithTaps(spec_.geometry, [&]<class Taps>(Taps) {
      return "F(" + by(Taps::kOutDown, Taps::kOutAcross) + ", " + by(Taps::kDown, Taps::kAcross) +
             ")";
    });
    return "winograd " + method + (spec_.has_add ? " + add" : "");
  }
  LayoutPtr input_layout(size_t i) const override {
    return i < inputs_.size() ? inputs_[i] : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override {
    return i < outputs_.size() ? outputs_[i] : nullptr;
  }
  bool spreads_error() const override { return true; }

 protected:
  const ConvSpec spec_;
  const int threads_;

 private:
  std::vector<LayoutPtr> inputs_, outputs_;
};

/// The transformed filter is an argument, not made at each call.
bool IsPrepared(const ConvSpec& spec, int64_t lanes) {
  return spec.constant_weights && spec.pass == ConvPass::kForward &&
         FitsPrepared(spec.geometry.weight_shape(), lanes);
}

/// Layouts of x or dy, of the filter, of the bias, and of what is added to y.
std::vector<LayoutPtr> ArgumentLayouts(const ConvSpec& spec, LaneTag tag, const Shape& from,
                                       const Shape& to, int64_t lanes) {
  std::vector<LayoutPtr> layouts(spec.add_input() + 1);
  layouts[0] = LayoutOf(from, tag);
  if (IsPrepared(spec, lanes)) layouts[1] = PreparedLayout(spec.geometry.weight_shape(), lanes);
  if (spec.has_add) layouts[spec.add_input()] = LayoutOf(to, tag);
  return layouts;
}

/// Results from sources: y from x, or dx from dy.
///
/// Either a thread takes some tiles, transforms them, and multiplies them with the whole filter,
/// which all threads share; or all tiles are transformed first, and a thread takes a panel of the
/// filter. The first keeps the tiles' values in the second level cache, the second the filter's,
/// which are many more for deep layers with small images. The results are the same bits.
template <int64_t kLanes, class Taps>
class FilterPlan final : public WinogradPlan {
 public:
  FilterPlan(const ConvSpec& spec, LaneTag tag, const Shape& from, const Shape& to, int64_t pad_top,
             int64_t pad_left)
      : WinogradPlan(spec, ArgumentLayouts(spec, tag, from, to, kLanes), {LayoutOf(to, tag)}),
        prepared_(IsPrepared(spec, kLanes)),
        from_(from, tag),
        to_(to, tag),
        depth_(from[1]),
        columns_(to[1]),
        pad_top_(pad_top),
        pad_left_(pad_left),
        tiles_(to[0], to[2], to[3], Taps::kOutDown, Taps::kOutAcross),
        by_panel_(ByPanel(depth_, columns_, tiles_.count, threads_)),
        chunk_(ChunkOf(depth_, columns_, tiles_.count, by_panel_ ? 1 : threads_)),
        values_(kPositions, by_panel_ ? RoundUp(tiles_.count, kRows) : chunk_,
                RoundUp(depth_, kLanes), kLanes),
        products_(kPositions, chunk_, kPanel, kLanes),
        filter_(depth_, columns_, spec.pass == ConvPass::kBackwardX) {}

  size_t workspace_bytes() const override {
    const int64_t shared = by_panel_ ? values_.size : prepared_ ? 0 : filter_.size * filter_.count;
    return static_cast<size_t>(shared + threads_ * thread_size()) * sizeof(float);
  }
  int inplace_input(size_t i) const override {
    return i == 0 && spec_.has_add ? static_cast<int>(spec_.add_input()) : -1;
  }

  void Run(const Execution& execution) const override {
    const float* bias = spec_.geometry.bias ? execution.in<float>(2) : nullptr;
    const float* add = spec_.has_add ? execution.in<float>(spec_.add_input()) : nullptr;
    const Call call{execution.in<float>(0),
                    execution.in<float>(1),
                    {bias, add, spec_.relu},
                    execution.out<float>(0),
                    static_cast<float*>(execution.workspace)};
    by_panel_ ? RunByPanel(call) : RunByTiles(call);
  }

 private:
  using Loops = Kernels<kLanes, Taps>;
  static constexpr int64_t kPositions = Taps::kPositions;
  static constexpr int64_t kRows = kTileRows<kLanes>;
  static constexpr int64_t kPanel = FilterPanels<kLanes, Taps>::kWidth;

  struct Call {
    const float* x;
    const float* weights;  // or their values, where the filter is prepared
    After after;
    float* y;
    float* workspace;
  };

  static bool ByPanel(int64_t depth, int64_t columns, int64_t tiles, int threads) {
    return tiles < columns && columns >= kPanel * threads && tiles * depth < (int64_t{256} << 10);
  }
  // Tiles of a chunk: their values and one panel's products stay in the second level cache; where
  // the filter does not, there are more, so that it is read less often.
  static int64_t ChunkOf(int64_t depth, int64_t columns, int64_t tiles, int threads) {
    const int64_t share = RoundUp((tiles + threads - 1) / threads, kRows);
    const int64_t tile = kPositions * (depth + kPanel);
    const int64_t cached = ((kLanes == 8 ? 128 : 160) << 10) / tile / kRows * kRows;
    const int64_t most = TilesLike(kLanes == 8 ? 48 : 96, kPositions);
    const int64_t filter = kPositions * depth * columns;
    int64_t least = 24;
    if (kLanes == 16 && filter > (int64_t{1} << 20)) least = filter > (int64_t{4} << 20) ? 96 : 48;
    return std::min(std::clamp(cached, std::min(least, most), most), share);
  }
  int64_t thread_size() const {
    const int64_t panel = prepared_ ? 0 : filter_.size;
    return RoundUp(products_.size + (by_panel_ ? panel : values_.size), kLanes);
  }

  void RunByTiles(const Call& call) const {
    const float* filter = call.weights;
    float* own = call.workspace;
    if (!prepared_) {
      float* transformed = call.workspace;
      ParallelFor(filter_.count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel)
          filter_.Transform(panel, call.weights, transformed + panel * filter_.size);
      });
      filter = transformed;
      own += filter_.size * filter_.count;
    }
    ForEachThread(threads_, [&](int64_t thread) {
      float* values = own + thread * thread_size();
      float* products = values + values_.size;
      const int64_t chunks = (tiles_.count + chunk_ - 1) / chunk_;
      const int64_t last = chunks * (thread + 1) / threads_;
      for (int64_t chunk = chunks * thread / threads_; chunk < last; ++chunk) {
        const int64_t first = chunk * chunk_, count = std::min(chunk_, tiles_.count - first);
        TransformTiles(call.x, first, count, values);
        FillRows(count, RoundUp(count, kRows), depth_, kPositions, values_, values);
        for (int64_t panel = 0; panel < filter_.count; ++panel)
          MultiplyPanel(call, panel, filter + panel * filter_.size, values, first, count, products);
      }
    });
  }

  void RunByPanel(const Call& call) const {
    float* values = call.workspace;
    float* own = values + values_.size;
    ParallelFor(tiles_.count, 4, [&](int64_t begin, int64_t end) {
      TransformTiles(call.x, begin, end - begin, values + begin * values_.tile_step);
    });
    FillRows(tiles_.count, RoundUp(tiles_.count, kRows), depth_, kPositions, values_, values);
    ForEachThread(threads_, [&](int64_t thread) {
      float* products = own + thread * thread_size();
      float* transformed = products + products_.size;
      const int64_t last = filter_.count * (thread + 1) / threads_;
      for (int64_t panel = filter_.count * thread / threads_; panel < last; ++panel) {
        const float* filter = prepared_ ? call.weights + panel * filter_.size : transformed;
        if (!prepared_) filter_.Transform(panel, call.weights, transformed);
        for (int64_t first = 0; first < tiles_.count; first += chunk_)
          MultiplyPanel(call, panel, filter, values + first * values_.tile_step, first,
                        std::min(chunk_, tiles_.count - first), products);
      }
    });
  }

  void TransformTiles(const float* x, int64_t first, int64_t count, float* values) const {
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      Loops::TransformInput(from_, x + place.image * from_.image_step, place.h - pad_top_,
                            place.w - pad_left_, values + i * values_.tile_step,
                            values_.position_step);
    }
  }

  void MultiplyPanel(const Call& call, int64_t panel, const float* filter, const float* values,
                     int64_t first, int64_t count, float* products) const {
    const int64_t rows = RoundUp(count, kRows);  // the products of rows beyond are never read
    const int64_t width = filter_.width(panel);
    for (int p = 0; p < kPositions; ++p)
      Multiply<kLanes>(rows, width, depth_,
                       {values + p * values_.position_step, values_.tile_step, 1},
                       filter + p * filter_.position_step, width,
                       products + p * products_.position_step, products_.tile_step, false);
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      After after = call.after;
      if (after.add) after.add += place.image * to_.image_step;
      Loops::TransformOutput(to_, panel * kPanel / kLanes, width / kLanes,
                             products + i * products_.tile_step, products_.position_step, after,
                             place.h, place.w, call.y + place.image * to_.image_step);
    }
  }

  const bool prepared_;
  Image<kLanes> from_, to_;
  int64_t depth_, columns_, pad_top_, pad_left_;
  Tiles tiles_;
  bool by_panel_;
  int64_t chunk_;
  Values values_, products_;
  FilterPanels<kLanes, Taps> filter_;
};

/// dW, and db, from dy and x: sums of products of all tiles' values, in one of three ways.
///
/// - By slice, where the sums stay in the second level cache: the tiles are cut into slices, each
/// of
///   which a thread transforms and multiplies piece by piece, into sums of its own. All of that
///   stays in its cache. How many slices there are follows from the geometry.
/// - By chunk: all threads transform a chunk of tiles, and add its products to all sums.
/// - At once, where the sums are many and the tiles few: all tiles are transformed, and each thread
///   goes from sums to weights for some results at a time.
///
/// Each sum grows in the order of the tiles, whatever the number of threads.
template <int64_t kLanes, class Taps>
class GradientPlan final : public WinogradPlan {
 public:
  GradientPlan(const ConvSpec& spec, LaneTag tag, const Shape& x, const Shape& y)
      : WinogradPlan(spec, {LayoutOf(y, tag), LayoutOf(x, tag)}, {}),
        x_(x, tag),
        y_(y, tag),
        images_(x[0]),
        in_(x[1]),
        out_(y[1]),
        tiles_(y[0], y[2], y[3], Taps::kOutDown, Taps::kOutAcross),
        slices_(SlicesOf()),
        at_once_(tiles_.count * (in_ + out_) < in_ * out_),
        chunk_(slices_ > 0 ? PieceOf()
               : at_once_  ? tiles_.count
                           : ChunkOf()),
        x_values_(kPositions, chunk_, RoundUp(in_, kLanes), kLanes),
        y_values_(kPositions, chunk_, RoundUp(out_, kLanes), kLanes) {}

  size_t workspace_bytes() const override {
    const int64_t values = x_values_.size + y_values_.size;
    const int64_t numbers = slices_ > 0 ? threads_ * values + slices_ * sums_size()
                            : at_once_  ? values + threads_ * kBlock * result_step()
                                        : values + sums_size();
    return static_cast<size_t>(numbers) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const float* dy = execution.in<float>(0);
    const float* x = execution.in<float>(1);
    float* dw = execution.out<float>(0);
    auto* workspace = static_cast<float*>(execution.workspace);
    slices_ > 0 ? RunBySlice(x, dy, dw, workspace) : RunByChunk(x, dy, dw, workspace);
    if (spec_.geometry.bias) SumOutputs(dy, execution.out<float>(1));
  }

 private:
  using Loops = Kernels<kLanes, Taps>;
  static constexpr int64_t kPositions = Taps::kPositions;
  static constexpr int64_t kBlock = kLanes == 16 ? 16 : 12;  // results that are summed together
  static constexpr int64_t kRows = 4;                        // as many of them as a product takes
  // From one position's sums to the next one's, apart as values are, and from result to result.
  int64_t sum_step() const { return RoundUp(in_, kLanes) + kLanes; }
  int64_t result_step() const { return kPositions * sum_step(); }
  int64_t sums_size() const { return result_step() * RoundUp(out_, kRows); }  // [out][position][in]
  int64_t blocks() const { return (out_ + kBlock - 1) / kBlock; }
  int64_t results(int64_t block) const { return std::min(kBlock, out_ - block * kBlock); }

  // With 8 lanes chunks are as fast: products take longer, and fewer values are needed for each.
  int64_t SlicesOf() const {
    const int64_t bytes = sums_size() * static_cast<int64_t>(sizeof(float));
    if (kLanes == 8 || bytes > SecondLevelCacheBytes() * 3 / 8) return 0;
    const int64_t slices = std::clamp<int64_t>((int64_t{4} << 20) / bytes, 4, 16);
    return tiles_.count >= 32 * slices ? slices : 0;
  }
  // Tiles whose values take a quarter of the cache.
  int64_t PieceOf() const {
    const auto tile = static_cast<int64_t>(sizeof(float)) * kPositions *
                      (RoundUp(in_, kLanes) + RoundUp(out_, kLanes) + 2 * kLanes);
    return std::clamp<int64_t>(SecondLevelCacheBytes() / 2 / tile, 16, 128);
  }
  // Tiles whose values stay in the last level cache, more of them where the sums are large, so that
  // those are read less often.
  int64_t ChunkOf() const {
    const int64_t tile = kPositions * (in_ + out_);
    if constexpr (kLanes == 8)
      return std::min(tiles_.count, std::clamp<int64_t>((int64_t{1} << 19) / tile, 64,
                                                        TilesLike(128, kPositions)));
    return std::min(tiles_.count, std::clamp<int64_t>((int64_t{1} << 21) / tile, 128,
                                                      TilesLike(512, kPositions)));
  }

  void RunBySlice(const float* x, const float* dy, float* dw, float* workspace) const {
    const int64_t values = x_values_.size + y_values_.size;
    float* sums = workspace + threads_ * values;
    ForEachThread(threads_, [&](int64_t thread) {
      float* x_values = workspace + thread * values;
      float* y_values = x_values + x_values_.size;
      for (int64_t s = slices_ * thread / threads_; s < slices_ * (thread + 1) / threads_; ++s) {
        const int64_t begin = tiles_.count * s / slices_, end = tiles_.count * (s + 1) / slices_;
        for (int64_t first = begin; first < end; first += chunk_) {
          const int64_t count = std::min(chunk_, end - first);
          TransformTiles(x, dy, first, 0, count, x_values, y_values);
          for (int64_t p = 0; p < kPositions; ++p)
            for (int64_t block = 0; block < blocks(); ++block)
              AddProducts(p, block, count, x_values, y_values,
                          sums + s * sums_size() + block * kBlock * result_step(), first != begin);
        }
      }
    });
    ParallelFor(out_, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* own = sums + i * result_step();
        for (int64_t s = 1; s < slices_; ++s) Loops::Add(result_step(), own + s * sums_size(), own);
        Loops::TransformFilterGradient(in_, own, sum_step(), dw + i * in_ * Taps::kWeights);
      }
    });
  }

  void RunByChunk(const float* x, const float* dy, float* dw, float* workspace) const {
    float* x_values = workspace;
    float* y_values = x_values + x_values_.size;
    float* sums = y_values + y_values_.size;
    const int64_t block_size = kBlock * result_step();
    for (int64_t first = 0; first < tiles_.count; first += chunk_) {
      const int64_t count = std::min(chunk_, tiles_.count - first);
      ParallelFor(count, 4, [&](int64_t begin, int64_t end) {
        TransformTiles(x, dy, first, begin, end, x_values, y_values);
      });
      if (at_once_) break;
      ParallelFor(kPositions * blocks(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item)
          AddProducts(item / blocks(), item % blocks(), count, x_values, y_values,
                      sums + item % blocks() * block_size, first != 0);
      });
    }
    const int64_t pieces = std::min<int64_t>(threads_, blocks());
    ParallelFor(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        for (int64_t block = blocks() * piece / pieces; block < blocks() * (piece + 1) / pieces;
             ++block) {
          float* own = sums + (at_once_ ? piece : block) * block_size;
          for (int64_t p = 0; at_once_ && p < kPositions; ++p)
            AddProducts(p, block, tiles_.count, x_values, y_values, own, false);
          for (int64_t i = 0; i < results(block); ++i)
            Loops::TransformFilterGradient(in_, own + i * result_step(), sum_step(),
                                           dw + (block * kBlock + i) * in_ * Taps::kWeights);
        }
    });
  }

  /// Tiles begin to end of those from `first` on.
  void TransformTiles(const float* x, const float* dy, int64_t first, int64_t begin, int64_t end,
                      float* x_values, float* y_values) const {
    for (int64_t i = begin; i < end; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      float* of_x = x_values + i * x_values_.tile_step;
      float* of_y = y_values + i * y_values_.tile_step;
      Loops::TransformInput(x_, x + place.image * x_.image_step, place.h - spec_.geometry.pad_top,
                            place.w - spec_.geometry.pad_left, of_x, x_values_.position_step);
      Loops::TransformOutputGradient(y_, dy + place.image * y_.image_step, place.h, place.w, of_y,
                                     y_values_.position_step);
      FillVectors(x_, kPositions, of_x, x_values_.position_step);
      FillVectors(y_, kPositions, of_y, y_values_.position_step);
    }
  }

  /// Of one position and one block of results.
  void AddProducts(int64_t p, int64_t block, int64_t count, const float* x_values,
                   const float* y_values, float* sums, bool add) const {
    Multiply<kLanes>(
        RoundUp(results(block), kRows), RoundUp(in_, kLanes), count,
        {y_values + p * y_values_.position_step + block * kBlock, 1, y_values_.tile_step},
        x_values + p * x_values_.position_step, x_values_.tile_step, sums + p * sum_step(),
        result_step(), add);
  }

  void SumOutputs(const float* dy, float* db) const {
    ParallelFor(y_.blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        std::array<double, kLanes> sums = {};
        for (int64_t n = 0; n < images_; ++n)
          for (int64_t h = 0; h < y_.height; ++h)
            Loops::SumRow(dy + n * y_.image_step + y_.offset(block) + h * y_.row_step,
                          y_.column_step, y_.width, sums.data());
        const int64_t first = y_.channel(block);
        for (int64_t lane = 0; lane < std::min(kLanes, out_ - first); ++lane)
          db[first + lane] = static_cast<float>(sums[static_cast<size_t>(lane)]);
      }
    });
  }

  Image<kLanes> x_, y_;
  int64_t images_, in_, out_;
  Tiles tiles_;
  int64_t slices_;  // 0: by chunk
  bool at_once_;
  int64_t chunk_;
  Values x_values_, y_values_;
};

/// What Winograd's method costs, in multiply-adds of the direct one. Measured with
/// benchmark/winograd.py on a CPU of each kind.
struct Costs {
  double product;             // a multiply-add of its own
  double value, far_value;    // to transform a tile of a channel; where images come from memory
  double cached;              // those that do not
  double pair;                // to transform the filter of a pair of channels, and to read it
  double prepared_pair;       // only to read it, from the second level cache: an estimate
  int64_t pixels;             // of a row that the direct method computes together
  int64_t results, summands;  // channels that it fills up with zeros, of results and of sums
};
constexpr Costs kAvx512Costs = {1.15, 500, 1150, 4e5, 600, 60, 1, 16, 1};
constexpr Costs kAvx2Costs = {1.05, 450, 700, 2e5, 430, 60, 4, 8, 8};

/// Channels that are mostly there, when they come in vectors.
bool MostlyFilled(int64_t channels, int64_t lanes) {
  return RoundUp(channels, lanes) < 2 * channels;
}

}  // namespace

std::string Refuses(const ConvSpec& spec, int64_t lanes) {
  const Recorder& r = spec.geometry;
  if (lanes < 8) return "Winograd's method pays with AVX-512 or AVX2";
  if (spec.pass == ConvPass::kBackwardB) return "Winograd's method is for the other passes";
  if (spec.plain) return "Winograd's method is for channels-last and blocked images";
  if (spec.dtype != kFloat32) return "Winograd's method is for float32";
  const bool known = WithTaps(r, []<class Taps>(Taps) { return true; });
  if (!known || r.stride_h != 1 || r.stride_w != 1 || r.dilation_h != 1 || r.dilation_w != 1)
    return "Winograd's method is for kernels of 3 x 3, 5 x 5, and 3 or 7 in a row, of stride and "
           "dilation 1";
  // Much of a tile then cancels, and what is left has the error of all of it.
  const auto thin = [](int64_t taps, int64_t in, int64_t out) {
    return taps > 3 && std::min(in, out) < kOut<7>;
  };
  if (thin(r.kernel_h, r.height, r.conv_height) || thin(r.kernel_w, r.width, r.conv_width))
    return "Winograd's method is for images that fill a tile, where kernels have 5 weights and "
           "more";
  if (r.group != 1) return "Winograd's method is for one group";
  if (!MostlyFilled(r.in_channels, lanes) || !MostlyFilled(r.out_channels, lanes))
    return "Winograd's method is for channels that fill half a vector and more";
  if (std::max(r.pad_top, r.pad_bottom) >= r.kernel_h ||
      std::max(r.pad_left, r.pad_right) >= r.kernel_w)
    return "Winograd's method is for padding that is smaller than the kernel";
  if (IsStrict()) return "Winograd's method rounds more than strict mode allows";
  return "";
}

bool Pays(const ConvSpec& spec, int64_t lanes) {
  const Costs& costs = lanes == 16 ? kAvx512Costs : kAvx2Costs;
  const Recorder& r = spec.geometry;
  const bool to_input = spec.pass == ConvPass::kBackwardX;
  return WithTaps(r, [&]<class Taps>(Taps) {
    const Tiles tiles(r.batchsize, to_input ? r.height : r.conv_height,
                      to_input ? r.width : r.conv_width, Taps::kOutDown, Taps::kOutAcross);
    constexpr double share = Taps::kPositions / 36.0;  // of what a tile of 6 x 6 takes
    const int64_t rows = RoundUp(tiles.count, lanes == 16 ? kTileRows<16> : kTileRows<8>);
    const int64_t in = RoundUp(r.in_channels, lanes), out = RoundUp(r.out_channels, lanes);
    const auto values = share * static_cast<double>(tiles.count * (in + out));
    const auto pairs = static_cast<double>(in * out);
    const double cost =
        costs.product * static_cast<double>(rows * Taps::kPositions) * pairs +
        (values < costs.cached ? costs.value : costs.far_value) * values +
        (IsPrepared(spec, lanes) ? costs.prepared_pair : costs.pair) * share * pairs;
    const int64_t direct = r.batchsize * r.conv_height * RoundUp(r.conv_width, costs.pixels) *
                           Taps::kWeights *
                           RoundUp(r.in_channels, to_input ? costs.results : costs.summands) *
                           RoundUp(r.out_channels, to_input ? costs.summands : costs.results);
    return cost < 0.95 * static_cast<double>(direct);
  });
}

namespace {

template <int64_t kLanes, class Taps>
PlanPtr MakePlanOf(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  const LaneTag tag = TagFor(spec, kLanes);
  switch (spec.pass) {
    case ConvPass::kForward:
      return std::make_shared<FilterPlan<kLanes, Taps>>(spec, tag, r.input_shape(),
                                                        r.output_shape(), r.pad_top, r.pad_left);
    case ConvPass::kBackwardX:
      return std::make_shared<FilterPlan<kLanes, Taps>>(
          spec, tag, r.output_shape(), r.input_shape(), Taps::kDown - 1 - r.pad_top,
          Taps::kAcross - 1 - r.pad_left);
    default:
      return std::make_shared<GradientPlan<kLanes, Taps>>(spec, tag, r.input_shape(),
                                                          r.output_shape());
  }
}

}  // namespace

PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes) {
  return WithTaps(spec.geometry, [&]<class Taps>(Taps) {
    return lanes == 16 ? MakePlanOf<16, Taps>(spec) : MakePlanOf<8, Taps>(spec);
  });
}

}  // namespace singa::onednn::winograd
