// Convolutions of stride 1 by Winograd's method, in all three passes, for the filters of WithTaps
// and the image layouts of oneDNN's kernels. Filters and their gradients are row-major, since each
// call transforms them anyway, except for small filters with constant weights (filter.h).

#include "backend/cpu/winograd/convolution.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "backend/cpu/linalg/tile_product.h"
#include "backend/cpu/winograd/filter.h"
#include "backend/cpu/winograd/plan.h"
#include "backend/cpu/winograd/taps.h"
#include "backend/cpu/winograd/tiles.h"
#include "core/device/cache_size.h"
#include "core/device/parallel.h"

namespace singa::cpu::winograd {
namespace {

/// A multiple of 12 tiles with about as many values as `tiles` tiles of 6 x 6.
constexpr int64_t TilesLike(int64_t tiles, int64_t positions) {
  constexpr int64_t kRows = 12;  // rows of a product: a multiple of every kTileRows
  return std::max(tiles * 36 / positions / kRows, int64_t{1}) * kRows;
}

// Products read whole vectors and rows. The padding does not affect results, but it must be zero:
// uninitialised memory may hold subnormal numbers, which some processors multiply a hundred times
// slower.

/// Zeroes the padding channels of a tile's values.
template <int64_t kLanes>
void FillVectors(const Image<kLanes>& image, int64_t positions, float* values,
                 int64_t position_step) {
  const int64_t missing = RoundUp(image.channels, kLanes) - image.channels;
  if (!image.channels_last || missing == 0) return;  // blocked images have zeros there
  for (int64_t p = 0; p < positions; ++p)
    std::fill_n(values + p * position_step + image.channels, missing, 0.0f);
}

/// Zeroes the padding rows behind `count` tiles of `depth` channels.
void FillRows(int64_t count, int64_t rows, int64_t depth, int64_t positions, const Values& layout,
              float* values) {
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = count; i < rows; ++i)
      std::fill_n(values + p * layout.position_step + i * layout.tile_step, depth, 0.0f);
}

/// Computes y from x, or dx from dy.
///
/// By tiles: each thread transforms some tiles and multiplies them with the whole filter, which all
/// threads share. By panel: all tiles are transformed first, then each thread takes panels of the
/// filter. The former keeps the tiles' values in the L2 cache; the latter keeps the filter's, of
/// which deep layers with small images have many more: some channels of a panel at a time. Both
/// give the same bits.
template <class T, int64_t kLanes>
class FilterPlan final : public WinogradPlan {
 public:
  FilterPlan(const ConvSpec& spec, const Loops<T, kLanes>& loops, LaneTag tag, const Shape& from,
             const Shape& to, int64_t pad_top, int64_t pad_left)
      : WinogradPlan(spec, ArgumentLayouts(spec, tag, from, to, kLanes),
                     {LaneLayout(to, spec.dtype, tag)}),
        loops_(loops),
        prepared_(IsPrepared(spec, kLanes)),
        from_(from, tag),
        to_(to, tag),
        depth_(from[1]),
        columns_(to[1]),
        pad_top_(pad_top),
        pad_left_(pad_left),
        tiles_(to[0], to_.height, to_.width, loops.out_down, loops.out_across),
        by_panel_(ByPanel(depth_, columns_, tiles_.count, threads_)),
        chunk_(ChunkOf(depth_, columns_, tiles_.count, by_panel_ ? 1 : threads_)),
        values_(loops.positions, by_panel_ ? RoundUp(tiles_.count, kRows) : chunk_,
                RoundUp(depth_, kLanes), kLanes),
        products_(loops.positions, chunk_, kPanel, kLanes),
        filter_(loops, depth_, columns_, spec.pass == ConvPass::kBackwardX),
        piece_(PieceOf()) {}

  size_t workspace_bytes() const override {
    const int64_t shared = by_panel_ ? values_.size : prepared_ ? 0 : filter_.size * filter_.count;
    return static_cast<size_t>(shared + threads_ * thread_size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Call call{execution.in<T>(0), execution.in<T>(1), AfterOf<T>(execution),
                    execution.out<T>(0), static_cast<float*>(execution.workspace)};
    by_panel_ ? RunByPanel(call) : RunByTiles(call);
  }

 private:
  static constexpr int64_t kRows = kTileRows<kLanes>;
  static constexpr int64_t kPanel = FilterPanels<T, kLanes>::kWidth;

  struct Call {
    const T* x;
    const T* weights;
    After<T> after;
    T* y;
    float* workspace;
  };

  /// The values of a filter that is prepared; such a filter is float32.
  static const float* Prepared(const Call& call) {
    return reinterpret_cast<const float*>(call.weights);
  }
  static bool ByPanel(int64_t depth, int64_t columns, int64_t tiles, int threads) {
    return tiles < columns && columns >= kPanel * threads && tiles * depth < (int64_t{256} << 10);
  }
  // Tiles of a chunk. Their values and the products of one panel fit in the L2 cache; if the filter
  // does not fit, chunks are larger, so that it is read less often.
  int64_t ChunkOf(int64_t depth, int64_t columns, int64_t tiles, int threads) const {
    const int64_t share = RoundUp((tiles + threads - 1) / threads, kRows);
    const int64_t tile = loops_.positions * (depth + kPanel);
    const int64_t cached = ((kLanes == 8 ? 128 : 160) << 10) / tile / kRows * kRows;
    const int64_t most = TilesLike(kLanes == 8 ? 48 : 96, loops_.positions);
    const int64_t filter = loops_.positions * depth * columns;
    int64_t least = 24;
    if (kLanes == 16 && filter > (int64_t{1} << 20)) least = filter > (int64_t{4} << 20) ? 96 : 48;
    return std::min(std::clamp(cached, std::min(least, most), most), share);
  }
  /// Channels of a panel that are transformed and multiplied together: as many as the L2 cache
  /// holds beside values and products, if all tiles' products are there.
  int64_t PieceOf() const {
    if (!by_panel_ || prepared_ || tiles_.count > chunk_) return depth_;
    const int64_t channel = loops_.positions * kPanel * static_cast<int64_t>(sizeof(float));
    return std::min(depth_,
                    std::max(SecondLevelCacheBytes() * 3 / 8 / channel / 16, int64_t{1}) * 16);
  }
  int64_t piece_step() const { return piece_ * kPanel + kLanes; }  // between its positions
  int64_t thread_size() const {
    const int64_t piece = prepared_ ? 0 : loops_.positions * piece_step();
    return RoundUp(products_.size + (by_panel_ ? piece : values_.size), kLanes);
  }

  void RunByTiles(const Call& call) const {
    const float* filter = Prepared(call);
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
    ParallelItems(CeilDivide(tiles_.count, chunk_), threads_, [&](Items& items) {
      float* values = own + items.thread() * thread_size();
      float* products = values + values_.size;
      for (const int64_t chunk : items) {
        const int64_t first = chunk * chunk_, count = std::min(chunk_, tiles_.count - first);
        TransformTiles(call.x, first, count, values);
        FillRows(count, RoundUp(count, kRows), depth_, loops_.positions, values_, values);
        for (int64_t panel = 0; panel < filter_.count; ++panel) {
          MultiplyPanel(filter + panel * filter_.size, filter_.position_step, panel, 0, depth_,
                        values, count, products);
          StoreOutputs(call, panel, first, count, products);
        }
      }
    });
  }

  void RunByPanel(const Call& call) const {
    float* values = call.workspace;
    float* own = values + values_.size;
    ParallelFor(tiles_.count, 4, [&](int64_t begin, int64_t end) {
      TransformTiles(call.x, begin, end - begin, values + begin * values_.tile_step);
    });
    FillRows(tiles_.count, RoundUp(tiles_.count, kRows), depth_, loops_.positions, values_, values);
    ParallelItems(filter_.count, threads_, [&](Items& items) {
      float* products = own + items.thread() * thread_size();
      float* transformed = products + products_.size;
      const float* filter = transformed;
      for (const int64_t panel : items) {
        if (prepared_) filter = Prepared(call) + panel * filter_.size;
        for (int64_t first = 0; first < tiles_.count; first += chunk_) {
          const int64_t count = std::min(chunk_, tiles_.count - first);
          for (int64_t channel = 0; channel < depth_; channel += piece_) {
            const int64_t channels = std::min(piece_, depth_ - channel);
            if (!prepared_ && first == 0)
              filter_.Transform(panel, channel, channels, call.weights, transformed, piece_step());
            MultiplyPanel(filter, piece_step(), panel, channel, channels,
                          values + first * values_.tile_step, count, products);
          }
          StoreOutputs(call, panel, first, count, products);
        }
      }
    });
  }

  void TransformTiles(const T* x, int64_t first, int64_t count, float* values) const {
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      loops_.transform_input(from_, x + place.image * from_.image_step, place.h - pad_top_,
                             place.w - pad_left_, values + i * values_.tile_step,
                             values_.position_step);
    }
  }

  /// Multiplies the values of `count` tiles with channels of a panel, and goes on with the products
  /// of the channels before.
  void MultiplyPanel(const float* filter, int64_t filter_step, int64_t panel, int64_t channel,
                     int64_t channels, const float* values, int64_t count, float* products) const {
    const int64_t rows = RowsFor<kLanes>(count);  // some are not read
    const int64_t width = filter_.width(panel);
    for (int p = 0; p < loops_.positions; ++p) {
      const Strided tiles = {values + p * values_.position_step + channel, values_.tile_step, 1};
      const float* weights = filter + p * filter_step;
      float* to = products + p * products_.position_step;
      if (channel == 0)
        Multiply<kLanes>(rows, width, channels, tiles, weights, width, to, products_.tile_step,
                         false);
      else
        MultiplyOn<kLanes>(rows, width, channels, tiles, weights, width, to, products_.tile_step);
    }
  }

  void StoreOutputs(const Call& call, int64_t panel, int64_t first, int64_t count,
                    const float* products) const {
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      After<T> after = call.after;
      if (after.add) after.add += place.image * to_.image_step;
      loops_.transform_output(to_, panel * kPanel / kLanes, filter_.width(panel) / kLanes,
                              products + i * products_.tile_step, products_.position_step, after,
                              place.h, place.w, call.y + place.image * to_.image_step);
    }
  }

  const Loops<T, kLanes> loops_;
  const bool prepared_;
  Image<kLanes> from_, to_;
  int64_t depth_, columns_, pad_top_, pad_left_;
  Tiles tiles_;
  bool by_panel_;
  int64_t chunk_;
  Values values_, products_;
  FilterPanels<T, kLanes> filter_;
  int64_t piece_;
};

/// Computes dW and db from dy and x: sums of products of all tiles' values, in one of three ways.
///
/// - By slice, if the sums fit in the L2 cache: the tiles are divided into slices. A thread
///   transforms and multiplies a slice piece by piece, into separate sums, all in its cache. The
///   number of slices depends on the geometry alone.
/// - By chunk: all threads transform a chunk of tiles, and add its products to all sums.
/// - At once, if there are many sums and few tiles: all tiles are transformed, and each thread
///   computes the sums and the weights of some results at a time.
///
/// Tiles are summed in an order that does not depend on the number of threads.
template <class T, int64_t kLanes>
class GradientPlan final : public WinogradPlan {
 public:
  GradientPlan(const ConvSpec& spec, const Loops<T, kLanes>& loops, LaneTag tag, const Shape& x,
               const Shape& y)
      : WinogradPlan(spec, {LaneLayout(y, spec.dtype, tag), LaneLayout(x, spec.dtype, tag)}, {}),
        loops_(loops),
        x_(x, tag),
        y_(y, tag),
        images_(x[0]),
        in_(x[1]),
        out_(y[1]),
        tiles_(y[0], y_.height, y_.width, loops.out_down, loops.out_across),
        slices_(SlicesOf()),
        at_once_(tiles_.count * (in_ + out_) < in_ * out_),
        chunk_(slices_ > 0 ? PieceOf()
               : at_once_  ? tiles_.count
                           : ChunkOf()),
        x_values_(loops.positions, chunk_, RoundUp(in_, kLanes), kLanes),
        y_values_(loops.positions, chunk_, RoundUp(out_, kLanes), kLanes) {}

  size_t workspace_bytes() const override {
    const int64_t values = x_values_.size + y_values_.size;
    const int64_t numbers = slices_ > 0 ? threads_ * values + slices_ * sums_size()
                            : at_once_  ? values + threads_ * kBlock * result_step()
                                        : values + sums_size();
    return static_cast<size_t>(numbers) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const T* dy = execution.in<T>(0);
    const T* x = execution.in<T>(1);
    T* dw = execution.out<T>(0);
    auto* workspace = static_cast<float*>(execution.workspace);
    slices_ > 0 ? RunBySlice(x, dy, dw, workspace) : RunByChunk(x, dy, dw, workspace);
    if (spec_.geometry.bias) SumOutputs(dy, execution.out<T>(1));
  }

 private:
  static constexpr int64_t kBlock = kLanes == 16 ? 16 : 12;  // results that are summed together
  static constexpr int64_t kRows = 4;                        // of them in one product
  // Strides of the sums between positions, padded like Values, and between results.
  int64_t sum_step() const { return RoundUp(in_, kLanes) + kLanes; }
  int64_t result_step() const { return loops_.positions * sum_step(); }
  int64_t sums_size() const { return result_step() * RoundUp(out_, kRows); }  // [out][position][in]
  int64_t blocks() const { return (out_ + kBlock - 1) / kBlock; }
  int64_t results(int64_t block) const { return std::min(kBlock, out_ - block * kBlock); }

  // With 8 lanes, chunks are as fast: products take longer and need fewer values each.
  int64_t SlicesOf() const {
    const int64_t bytes = sums_size() * static_cast<int64_t>(sizeof(float));
    if (kLanes == 8 || bytes > SecondLevelCacheBytes() * 3 / 8) return 0;
    const int64_t slices = std::clamp<int64_t>((int64_t{4} << 20) / bytes, 4, 16);
    return tiles_.count >= 32 * slices ? slices : 0;
  }
  // Tiles whose values fill half of the L2 cache.
  int64_t PieceOf() const {
    const auto tile = static_cast<int64_t>(sizeof(float)) * loops_.positions *
                      (RoundUp(in_, kLanes) + RoundUp(out_, kLanes) + 2 * kLanes);
    return std::clamp<int64_t>(SecondLevelCacheBytes() / 2 / tile, 16, 128);
  }
  // Tiles whose values fit in the last-level cache. Large sums get more tiles, so that they are
  // read less often.
  int64_t ChunkOf() const {
    const int64_t tile = loops_.positions * (in_ + out_);
    if constexpr (kLanes == 8)
      return std::min(tiles_.count, std::clamp<int64_t>((int64_t{1} << 19) / tile, 64,
                                                        TilesLike(128, loops_.positions)));
    return std::min(tiles_.count, std::clamp<int64_t>((int64_t{1} << 21) / tile, 128,
                                                      TilesLike(512, loops_.positions)));
  }

  void RunBySlice(const T* x, const T* dy, T* dw, float* workspace) const {
    const int64_t values = x_values_.size + y_values_.size;
    float* sums = workspace + threads_ * values;
    ParallelItems(slices_, threads_, [&](Items& items) {
      float* x_values = workspace + items.thread() * values;
      float* y_values = x_values + x_values_.size;
      for (const int64_t s : items) {
        const int64_t begin = tiles_.count * s / slices_, end = tiles_.count * (s + 1) / slices_;
        for (int64_t first = begin; first < end; first += chunk_) {
          const int64_t count = std::min(chunk_, end - first);
          TransformTiles(x, dy, first, 0, count, x_values, y_values);
          for (int64_t p = 0; p < loops_.positions; ++p)
            for (int64_t block = 0; block < blocks(); ++block)
              AddProducts(p, block, count, x_values, y_values,
                          sums + s * sums_size() + block * kBlock * result_step(), first != begin);
        }
      }
    });
    ParallelFor(out_, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* own = sums + i * result_step();
        for (int64_t s = 1; s < slices_; ++s) loops_.add(result_step(), own + s * sums_size(), own);
        loops_.transform_filter_gradient(in_, own, sum_step(), dw + i * in_ * loops_.weights);
      }
    });
  }

  void RunByChunk(const T* x, const T* dy, T* dw, float* workspace) const {
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
      ParallelFor(loops_.positions * blocks(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item)
          AddProducts(item / blocks(), item % blocks(), count, x_values, y_values,
                      sums + item % blocks() * block_size, first != 0);
      });
    }
    ParallelItems(blocks(), threads_, [&](Items& items) {
      for (const int64_t block : items) {
        float* own = sums + (at_once_ ? items.thread() : block) * block_size;
        for (int64_t p = 0; at_once_ && p < loops_.positions; ++p)
          AddProducts(p, block, tiles_.count, x_values, y_values, own, false);
        for (int64_t i = 0; i < results(block); ++i)
          loops_.transform_filter_gradient(in_, own + i * result_step(), sum_step(),
                                           dw + (block * kBlock + i) * in_ * loops_.weights);
      }
    });
  }

  /// Transforms tiles [begin, end), counted from `first`.
  void TransformTiles(const T* x, const T* dy, int64_t first, int64_t begin, int64_t end,
                      float* x_values, float* y_values) const {
    for (int64_t i = begin; i < end; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      float* of_x = x_values + i * x_values_.tile_step;
      float* of_y = y_values + i * y_values_.tile_step;
      loops_.transform_input(x_, x + place.image * x_.image_step,
                             place.h - spec_.geometry.pad_top(),
                             place.w - spec_.geometry.pad_left(), of_x, x_values_.position_step);
      loops_.transform_output_gradient(y_, dy + place.image * y_.image_step, place.h, place.w, of_y,
                                       y_values_.position_step);
      FillVectors(x_, loops_.positions, of_x, x_values_.position_step);
      FillVectors(y_, loops_.positions, of_y, y_values_.position_step);
    }
  }

  /// Adds the products of one position and one block of results.
  void AddProducts(int64_t p, int64_t block, int64_t count, const float* x_values,
                   const float* y_values, float* sums, bool add) const {
    Multiply<kLanes>(
        RoundUp(results(block), kRows), RoundUp(in_, kLanes), count,
        {y_values + p * y_values_.position_step + block * kBlock, 1, y_values_.tile_step},
        x_values + p * x_values_.position_step, x_values_.tile_step, sums + p * sum_step(),
        result_step(), add);
  }

  void SumOutputs(const T* dy, T* db) const {
    ParallelFor(y_.blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        std::array<double, kLanes> sums = {};
        for (int64_t n = 0; n < images_; ++n)
          for (int64_t h = 0; h < y_.height; ++h)
            loops_.sum_row(dy + n * y_.image_step + y_.offset(block) + h * y_.row_step,
                           y_.column_step, y_.width, sums.data());
        const int64_t first = y_.channel(block);
        for (int64_t lane = 0; lane < std::min(kLanes, out_ - first); ++lane)
          db[first + lane] = T(static_cast<float>(sums[static_cast<size_t>(lane)]));
      }
    });
  }

  const Loops<T, kLanes> loops_;
  Image<kLanes> x_, y_;
  int64_t images_, in_, out_;
  Tiles tiles_;
  int64_t slices_;  // 0: not by slice
  bool at_once_;
  int64_t chunk_;
  Values x_values_, y_values_;
};

template <class T, int64_t kLanes>
PlanPtr MakePlanOf(const ConvSpec& spec, const Loops<T, kLanes>& loops) {
  const Recorder& r = spec.geometry;
  const LaneTag tag = TagFor(spec, kLanes);
  switch (spec.pass) {
    case ConvPass::kForward:
      return std::make_shared<FilterPlan<T, kLanes>>(spec, loops, tag, r.input_shape(),
                                                     r.output_shape(), r.pad_top(), r.pad_left());
    case ConvPass::kBackwardX:
      return std::make_shared<FilterPlan<T, kLanes>>(spec, loops, tag, r.output_shape(),
                                                     r.input_shape(), loops.down - 1 - r.pad_top(),
                                                     loops.across - 1 - r.pad_left());
    default:
      return std::make_shared<GradientPlan<T, kLanes>>(spec, loops, tag, r.input_shape(),
                                                       r.output_shape());
  }
}

}  // namespace

PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes) {
  return WithTaps(spec, [&]<class Taps>(Taps) {
    const auto make = [&]<class T>() {
      return lanes == 16 ? MakePlanOf<T, 16>(spec, Loops<T, 16>::template For<Taps>())
                         : MakePlanOf<T, 8>(spec, Loops<T, 8>::template For<Taps>());
    };
    if constexpr (!std::is_same_v<Taps, LargeTile>)
      if (spec.dtype == kFloat32) return make.template operator()<float>();
    return make.template operator()<BFloat16>();
  });
}

}  // namespace singa::cpu::winograd
