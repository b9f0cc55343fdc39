// Winograd's method in float32 whose products are of bfloat16 parts (backend/cpu/parts_product).
//
// Products and sums stay in the tiles of the multiplication, [position][panel][panel][tile], since
// each transform reads and writes vectors of 16 channels. Panels are counted from the first tile of
// all, and sums are cut after 128 terms, so results do not depend on the number of threads.

#include <algorithm>
#include <memory>
#include <type_traits>

#include "backend/cpu/norm/channel_sums.h"
#include "backend/cpu/parts_product/product.h"
#include "backend/cpu/winograd/convolution.h"
#include "backend/cpu/winograd/plan.h"
#include "core/device/parallel.h"

namespace singa::cpu::winograd {
namespace {

using batch_blocked::kDepth;
using batch_blocked::kSide;
using batch_blocked::kSums;
using parts_product::kChunk;
using parts_product::kPanel;
using parts_product::kPanelSums;
using parts_product::Matrix;
using parts_product::PartsUnit;
using parts_product::Runs;
using parts_product::Side;

constexpr int64_t kLanes = 16;
using Panels = FilterPanels<float, kLanes>;
static_assert(Panels::kWidth == kPanel && kLanes == kSide);

/// Memory of a call, handed out in pieces of whole cache lines.
class Memory {
 public:
  explicit Memory(void* memory) : next_(static_cast<char*>(memory)) {}
  template <class T>
  T* Take(int64_t count) {
    T* taken = reinterpret_cast<T*>(next_);
    next_ += Bytes<T>(count);
    return taken;
  }
  template <class T>
  static size_t Bytes(int64_t count) {
    return static_cast<size_t>(RoundUp(count * static_cast<int64_t>(sizeof(T)), 64));
  }

 private:
  char* next_;
};

/// Packed panels and the largest value of each.
struct PackedPanels {
  BFloat16* parts;
  uint32_t* largest;

  /// `size`: elements of a panel.
  static size_t Bytes(int64_t count, int64_t size) {
    return Memory::Bytes<BFloat16>(count * size) + Memory::Bytes<uint32_t>(count);
  }
  PackedPanels(Memory* memory, int64_t count, int64_t size)
      : parts(memory->Take<BFloat16>(count * size)), largest(memory->Take<uint32_t>(count)) {}
};

/// Computes y from x, or dx from dy. The filter is transformed and packed for all threads. Each
/// thread transforms a block of tiles, and packs them position by position.
class FilterPartsPlan final : public WinogradPlan {
 public:
  FilterPartsPlan(const ConvSpec& spec, const Loops<float, kLanes>& loops, LaneTag tag,
                  const Shape& from, const Shape& to, int64_t pad_top, int64_t pad_left,
                  const PartsUnit& unit)
      : WinogradPlan(spec, ArgumentLayouts(spec, tag, from, to, kLanes),
                     {LaneLayout(to, spec.dtype, tag)}, NameOf(unit)),
        unit_(unit),
        packed_(parts_product::PackedSize(unit.parts)),
        loops_(loops),
        prepared_(IsPrepared(spec, kLanes)),
        from_(from, tag),
        to_(to, tag),
        depth_(from[1]),
        columns_(to[1]),
        pad_top_(pad_top),
        pad_left_(pad_left),
        tiles_(to[0], to_.height, to_.width, loops.out_down, loops.out_across),
        filter_(loops, depth_, columns_, spec.pass == ConvPass::kBackwardX),
        chunks_(CeilDivide(depth_, kChunk)),
        block_(BlockOf()),
        values_(loops.positions, block_ * kPanel, RoundUp(depth_, kLanes), kLanes),
        product_step_(block_ * filter_.count * kPanelSums + kLanes) {}

  size_t workspace_bytes() const override {
    return PackedPanels::Bytes(filter_panels(), packed_) +
           static_cast<size_t>(threads_) * own_bytes();
  }
  double factor_error() const override { return batch_blocked::PartsError(unit_.parts); }

  void Run(const Execution& execution) const override {
    const Call call{execution.in<float>(0), execution.in<float>(1), AfterOf<float>(execution),
                    execution.out<float>(0)};
    Memory memory(execution.workspace);
    const PackedPanels filter(&memory, filter_panels(), packed_);
    char* own = memory.Take<char>(0);
    ParallelItems(filter_.count, threads_, [&](Items& items) {
      Own mine(own + static_cast<size_t>(items.thread()) * own_bytes(), *this);
      for (const int64_t panel : items)
        PackFilter(panel, FilterOf(call, panel, mine.filter), filter);
    });
    const int64_t panels = CeilDivide(tiles_.count, kPanel), blocks = CeilDivide(panels, block_);
    ParallelItems(blocks, threads_, [&](Items& items) {
      const batch_blocked::Session session(unit_.unit);
      Own mine(own + static_cast<size_t>(items.thread()) * own_bytes(), *this);
      for (const int64_t block : items) {
        const int64_t first = panels * block / blocks * kPanel,
                      end = std::min(panels * (block + 1) / blocks * kPanel, tiles_.count);
        RunBlock(call, filter, first, end - first, mine);
      }
    });
  }

 private:
  struct Call {
    const float* x;
    const float* weights;
    After<float> after;
    float* y;
  };
  /// A thread's memory.
  struct Own {
    float *values, *products, *filter;
    PackedPanels packed;
    uint8_t* plain;  ///< whether a pair of panels is multiplied plainly

    Own(char* at, const FilterPartsPlan& plan) : Own(Memory(at), plan) {}
    Own(Memory memory, const FilterPartsPlan& plan)
        : values(memory.Take<float>(plan.values_.size)),
          products(memory.Take<float>(plan.loops_.positions * plan.product_step_)),
          filter(memory.Take<float>(plan.prepared_ ? 0 : plan.filter_.size)),
          packed(&memory, plan.block_ * plan.chunks_, plan.packed_),
          plain(memory.Take<uint8_t>(plan.block_ * plan.filter_.count)) {}
  };
  size_t own_bytes() const {
    return Memory::Bytes<float>(values_.size) +
           Memory::Bytes<float>(loops_.positions * product_step_) +
           Memory::Bytes<float>(prepared_ ? 0 : filter_.size) +
           PackedPanels::Bytes(block_ * chunks_, packed_) +
           Memory::Bytes<uint8_t>(block_ * filter_.count);
  }
  int64_t filter_panels() const { return loops_.positions * filter_.count * chunks_; }
  int64_t StepsOf(int64_t chunk) const {
    return CeilDivide(std::min(kChunk, depth_ - chunk * kChunk), kDepth);
  }

  /// Panels of tiles in a block: more where the filter, which each block reads, is large.
  int64_t BlockOf() const {
    const int64_t most = depth_ + columns_ > 256 ? 4 : 2;
    return std::min(most, CeilDivide(CeilDivide(tiles_.count, kPanel), threads_));
  }

  /// The transformed weights of a panel; in `memory` if they are not prepared.
  const float* FilterOf(const Call& call, int64_t panel, float* memory) const {
    if (prepared_) return call.weights + panel * filter_.size;
    filter_.Transform(panel, call.weights, memory);
    return memory;
  }
  Matrix FilterMatrix(int64_t panel, const float* values) const {
    return {values, filter_.width(panel), false, filter_.width(panel),
            depth_, filter_.position_step};
  }
  void PackFilter(int64_t panel, const float* values, const PackedPanels& to) const {
    const Matrix matrix = FilterMatrix(panel, values);
    Runs runs;
    for (int64_t p = 0; p < loops_.positions; ++p)
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        matrix.Locate(p, 0, chunk * kChunk, &runs);
        const int64_t at = (p * filter_.count + panel) * chunks_ + chunk;
        to.largest[at] =
            Pack(unit_, Side::kRight, false, runs, StepsOf(chunk), to.parts + at * packed_, runs);
      }
  }

  void RunBlock(const Call& call, const PackedPanels& filter, int64_t first, int64_t count,
                Own& own) const {
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      loops_.transform_input(from_, call.x + place.image * from_.image_step, place.h - pad_top_,
                             place.w - pad_left_, own.values + i * values_.tile_step,
                             values_.position_step);
    }
    const int64_t panels = CeilDivide(count, kPanel);
    const Matrix tiles(own.values, values_.tile_step, true, count, depth_, values_.position_step);
    std::fill_n(own.plain, panels * filter_.count, uint8_t{0});
    for (int64_t p = 0; p < loops_.positions; ++p) {
      PackTiles(tiles, p, panels, own.packed);
      float* products = own.products + p * product_step_;
      for (int64_t column = 0; column < filter_.count; ++column) {
        const int64_t right = (p * filter_.count + column) * chunks_;
        for (int64_t i = 0; i < panels; ++i) {
          const int64_t pair = i * filter_.count + column;
          for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
            const int64_t left = i * chunks_ + chunk;
            if (!parts_product::HasParts(own.packed.largest[left], filter.largest[right + chunk]))
              own.plain[pair] = 1;
            AddChunk(chunk, products + pair * kPanelSums, [&](float* sums) {
              batch_blocked::MultiplyParts(unit_, own.packed.parts + left * packed_,
                                           filter.parts + (right + chunk) * packed_, StepsOf(chunk),
                                           sums);
            });
          }
        }
      }
    }
    for (int64_t column = 0; column < filter_.count; ++column)
      MultiplyPlainly(call, tiles, panels, column, own);
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place place = tiles_.At(first + i);
      After<float> after = call.after;
      if (after.add) after.add += place.image * to_.image_step;
      for (int64_t b = 0; b < to_.blocks; ++b)
        loops_.transform_output(to_, b, 1,
                                own.products + (i / kPanel * filter_.count + b / 2) * kPanelSums +
                                    (i % kPanel / kSide * 2 + b % 2) * kSums + i % kSide * kSide,
                                product_step_, after, place.h, place.w,
                                call.y + place.image * to_.image_step);
    }
  }

  void PackTiles(const Matrix& tiles, int64_t p, int64_t panels, const PackedPanels& to) const {
    const auto locate = [&](int64_t at, Runs* runs) {
      tiles.Locate(p, at / chunks_ * kPanel, at % chunks_ * kChunk, runs);
    };
    Runs runs[2];
    locate(0, &runs[0]);
    for (int64_t at = 0; at < panels * chunks_; ++at) {
      Runs& next = runs[(at + 1) % 2];
      locate(std::min(at + 1, panels * chunks_ - 1), &next);
      to.largest[at] = Pack(unit_, Side::kLeft, true, runs[at % 2], StepsOf(at % chunks_),
                            to.parts + at * packed_, next);
    }
  }

  /// Lets `multiply` compute the sums of a chunk, and adds them to those of the chunks before.
  template <class Multiply>
  static void AddChunk(int64_t chunk, float* to, const Multiply& multiply) {
    if (chunk == 0) return multiply(to);
    alignas(64) float sums[kPanelSums];
    multiply(sums);
    parts_product::AddSums(to, sums, to);
  }

  /// Multiplies pairs of panels that have no parts, at all positions, by float32 instructions.
  void MultiplyPlainly(const Call& call, const Matrix& tiles, int64_t panels, int64_t column,
                       Own& own) const {
    const float* values = nullptr;
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t pair = i * filter_.count + column;
      if (!own.plain[pair]) continue;
      if (!values) values = FilterOf(call, column, own.filter);
      const Matrix filter = FilterMatrix(column, values);
      Runs left, right;
      for (int64_t p = 0; p < loops_.positions; ++p)
        for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
          tiles.Locate(p, i * kPanel, chunk * kChunk, &left);
          filter.Locate(p, 0, chunk * kChunk, &right);
          AddChunk(chunk, own.products + p * product_step_ + pair * kPanelSums, [&](float* sums) {
            parts_product::MultiplyPlainly(left, true, right, false, StepsOf(chunk), sums);
          });
        }
    }
  }

  const PartsUnit unit_;
  const int64_t packed_;  ///< elements of a packed panel of a chunk
  const Loops<float, kLanes> loops_;
  const bool prepared_;
  Image<kLanes> from_, to_;
  int64_t depth_, columns_, pad_top_, pad_left_;
  Tiles tiles_;
  FilterPanels<float, kLanes> filter_;
  int64_t chunks_, block_;
  Values values_;
  int64_t product_step_;
};

/// Computes dW and db from dy and x: sums of products of all tiles' values. All threads transform a
/// chunk of tiles, and add its products to all sums.
class GradientPartsPlan final : public WinogradPlan {
 public:
  GradientPartsPlan(const ConvSpec& spec, const Loops<float, kLanes>& loops, LaneTag tag,
                    const Shape& x, const Shape& y, const PartsUnit& unit)
      : WinogradPlan(spec, {LaneLayout(y, spec.dtype, tag), LaneLayout(x, spec.dtype, tag)}, {},
                     NameOf(unit)),
        factor_error_(batch_blocked::PartsError(unit.parts)),
        loops_(loops),
        x_(x, tag),
        y_(y, tag),
        in_(x[1]),
        out_(y[1]),
        tiles_(y[0], y_.height, y_.width, loops.out_down, loops.out_across),
        chunk_(ChunkOf()),
        x_values_(loops.positions, chunk_, RoundUp(in_, kLanes), kLanes),
        y_values_(loops.positions, chunk_, RoundUp(out_, kLanes), kLanes),
        sum_step_(CeilDivide(out_, kPanel) * CeilDivide(in_, kPanel) * kPanelSums + kLanes),
        product_(unit, {loops.positions, out_, in_, chunk_}, threads_),
        last_(unit, {loops.positions, out_, in_, tiles_.count % chunk_}, threads_) {
    if (spec.geometry.bias) bias_ = MakeChannelSums(tag, y, spec.dtype);
  }

  size_t workspace_bytes() const override {
    const size_t products = Memory::Bytes<float>(x_values_.size) +
                            Memory::Bytes<float>(y_values_.size) +
                            Memory::Bytes<float>(loops_.positions * sum_step_) +
                            std::max(product_.workspace_bytes(), last_.workspace_bytes());
    return std::max(products, bias_ ? bias_->workspace_bytes() : 0);
  }
  double factor_error() const override { return factor_error_; }

  void Run(const Execution& execution) const override {
    const float* dy = execution.in<float>(0);
    const float* x = execution.in<float>(1);
    auto* dw = execution.out<float>(0);
    Memory memory(execution.workspace);
    auto* x_values = memory.Take<float>(x_values_.size);
    auto* y_values = memory.Take<float>(y_values_.size);
    Sums sums(memory.Take<float>(loops_.positions * sum_step_), *this);
    for (int64_t first = 0; first < tiles_.count; first += chunk_, sums.add = true) {
      const int64_t count = std::min(chunk_, tiles_.count - first);
      ParallelFor(count, 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          TransformTile(x, dy, first + i, x_values + i * x_values_.tile_step,
                        y_values + i * y_values_.tile_step);
      });
      const Matrix left(y_values, y_values_.tile_step, false, out_, count, y_values_.position_step);
      const Matrix right(x_values, x_values_.tile_step, false, in_, count, x_values_.position_step);
      (count == chunk_ ? product_ : last_).Run(left, right, sums, memory.Take<char>(0));
    }
    ParallelFor(out_, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t d = 0; d < in_; d += kLanes)
          loops_.transform_filter_gradient(std::min(kLanes, in_ - d), sums.At(i, d), sum_step_,
                                           dw + (i * in_ + d) * loops_.weights);
    });
    if (bias_)
      bias_->Run({execution.device, execution.inputs.first(1), execution.outputs.subspan(1, 1),
                  execution.scalars, execution.workspace});
  }

 private:
  /// Sums of all positions, in tiles of the multiplication.
  struct Sums final : parts_product::Target {
    float* data;
    int64_t position_step, columns;  ///< panels
    bool add = false;

    Sums(float* to, const GradientPartsPlan& plan)
        : data(to), position_step(plan.sum_step_), columns(CeilDivide(plan.in_, kPanel)) {}
    float* Panel(int64_t row, int64_t column) const {
      return data + (row / kPanel * columns + column / kPanel) * kPanelSums;
    }
    /// Of the first position.
    const float* At(int64_t row, int64_t column) const {
      return Panel(row, column) + (row % kPanel / kSide * 2 + column % kPanel / kSide) * kSums +
             row % kSide * kSide + column % kSide;
    }
    void Store(int64_t batch, int64_t row, int64_t column, const float* sums) const override {
      float* to = Panel(row, column) + batch * position_step;
      if (add)
        parts_product::AddSums(to, sums, to);
      else
        std::copy_n(sums, kPanelSums, to);
    }
  };

  /// Tiles that are transformed together: whole chunks of a sum, and more of them where there are
  /// many sums, which each of them reads.
  int64_t ChunkOf() const {
    const int64_t chunks = in_ * out_ >= 256 * 256 ? 4 : 2;
    return std::min(tiles_.count, chunks * kChunk);
  }

  void TransformTile(const float* x, const float* dy, int64_t tile, float* of_x,
                     float* of_y) const {
    const Tiles::Place place = tiles_.At(tile);
    loops_.transform_input(x_, x + place.image * x_.image_step, place.h - spec_.geometry.pad_top(),
                           place.w - spec_.geometry.pad_left(), of_x, x_values_.position_step);
    loops_.transform_output_gradient(y_, dy + place.image * y_.image_step, place.h, place.w, of_y,
                                     y_values_.position_step);
  }

  const double factor_error_;
  const Loops<float, kLanes> loops_;
  Image<kLanes> x_, y_;
  int64_t in_, out_;
  Tiles tiles_;
  int64_t chunk_;
  Values x_values_, y_values_;
  int64_t sum_step_;
  parts_product::BlockedProduct product_, last_;
  PlanPtr bias_;
};

}  // namespace

PlanPtr MakePartsPlan(const ConvSpec& spec, const PartsUnit& unit) {
  return WithTaps(spec, [&]<class Taps>(Taps) -> PlanPtr {
    if constexpr (std::is_same_v<Taps, LargeTile>) {
      return nullptr;  // for bfloat16
    } else {
      const auto loops = Loops<float, kLanes>::For<Taps>();
      const Recorder& r = spec.geometry;
      const LaneTag tag = TagFor(spec, kLanes);
      switch (spec.pass) {
        case ConvPass::kForward:
          return std::make_shared<FilterPartsPlan>(
              spec, loops, tag, r.input_shape(), r.output_shape(), r.pad_top(), r.pad_left(), unit);
        case ConvPass::kBackwardX:
          return std::make_shared<FilterPartsPlan>(spec, loops, tag, r.output_shape(),
                                                   r.input_shape(), loops.down - 1 - r.pad_top(),
                                                   loops.across - 1 - r.pad_left(), unit);
        default:
          return std::make_shared<GradientPartsPlan>(spec, loops, tag, r.input_shape(),
                                                     r.output_shape(), unit);
      }
    }
  });
}

}  // namespace singa::cpu::winograd
