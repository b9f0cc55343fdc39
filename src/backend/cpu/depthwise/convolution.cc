#include "backend/cpu/depthwise/convolution.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cpu/depthwise/images.h"
#include "backend/cpu/norm/batchnorm_loops.h"
#include "backend/cpu/norm/channel_sums.h"
#include "core/device/cache_size.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "singa/core/half.h"

namespace singa::cpu::depthwise {

int64_t BestLanes() {
#if defined(__x86_64__)
  const InstructionSet set = AllowedInstructionSet();
  return set >= InstructionSet::kAvx512 ? 16 : set >= InstructionSet::kAvx2 ? 8 : 0;
#elif defined(__aarch64__)
  return 8;
#else
  return 0;
#endif
}

namespace {

constexpr int64_t kMostGradientRows = 16;  // of dy, in a call
constexpr int64_t kMostLanes = 16;

/// The channels of a group, on both sides.
int64_t GroupOf(const ConvSpec& spec) { return spec.geometry.in_channels / spec.geometry.group; }

template <class T>
Loops<T> LoopsFor([[maybe_unused]] const ConvSpec& spec, [[maybe_unused]] int64_t lanes) {
  [[maybe_unused]] const Recorder& r = spec.geometry;
#if defined(__x86_64__)
  return lanes == 16 ? LoopsAvx512<T>(r.kernel_w(), r.stride_w(), GroupOf(spec))
                     : LoopsAvx2<T>(r.kernel_w(), r.stride_w(), GroupOf(spec));
#elif defined(__aarch64__)
  return LoopsNeon<T>(r.kernel_w(), r.stride_w(), GroupOf(spec));
#else
  return {};
#endif
}

/// The layout of images on both sides: the present one, if there is one. Else blocks, unless they
/// would be largely empty.
LaneTag TagFor(const ConvSpec& spec, int64_t lanes) {
  const Recorder& r = spec.geometry;
  for (const auto& tag : {LaneTagOf(spec.x_layout, r.input_shape(), spec.dtype),
                          LaneTagOf(spec.dy_layout, r.output_shape(), spec.dtype)})
    if (tag) return *tag;
  if (RoundUp(r.in_channels, lanes) * 100 > r.in_channels * 115) return LaneTag::kNhwc;
  return lanes == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c;
}

/// What the passes have in common. The source is the image that is read by rows, with its borders.
template <class T>
class DepthwisePlan : public Plan {
 public:
  std::string Describe() const override {
    std::string front = norm_ ? "norm" + ActivationSuffix(norm_->front) + " + " : "";
    if (norm_ && !norm_->has_norm) front.erase(0, std::string_view("norm + ").size());
    const std::string what = group_ == 1 ? "depthwise" : "groups of " + std::to_string(group_);
    return front + what + (spec_.has_add ? " + add" : "");
  }

 protected:
  /// `norm`: with this batch norm in front; may be null.
  DepthwisePlan(const ConvSpec& spec, const NormConvSpec* norm, int64_t lanes, LaneTag tag)
      : Plan("depthwise"),
        spec_(spec),
        norm_(norm ? std::optional(*norm) : std::nullopt),
        group_(GroupOf(spec)),
        loops_(LoopsFor<T>(spec, lanes)),
        gradient_(spec.pass == ConvPass::kBackwardX),
        x_(spec.geometry.input_shape(), tag),
        y_(spec.geometry.output_shape(), tag),
        x_layout_(LaneLayout(spec.geometry.input_shape(), spec.dtype, tag)),
        y_layout_(LaneLayout(spec.geometry.output_shape(), spec.dtype, tag)),
        down_(spec.geometry, gradient_),
        across_(spec.geometry, gradient_, lanes == 16 && group_ > 1),
        gradient_rows_(GradientRows(lanes)),
        held_(down_.Held(gradient_rows_)),
        panels_(source(), lanes, MostVectors(lanes)),
        threads_(std::clamp<int64_t>(
            (x_.images * x_.image_step + y_.images * y_.image_step) / kParallelGrain, 1,
            std::max(spec.threads, 1))) {}

  const Lanes& source() const { return gradient_ ? y_ : x_; }
  int64_t channels() const { return x_.channels; }
  int64_t row_size() const { return spec_.geometry.kernel_w() * panels_.lanes; }
  int64_t weights_size() const {  // of a vector
    return spec_.geometry.kernel_h() * group_ * row_size();
  }
  int64_t vectors() const { return x_.blocks * panels_.vectors; }
  int64_t window_size() const { return Window<T>::Size(across_, panels_, held_); }
  Window<T> NewWindow(const std::optional<NormCall>& front, float* buffer) const {
    return Window<T>(source(), across_, panels_, held_, loops_, front ? &*front : nullptr, buffer);
  }
  /// Floats for the constants of a batch norm in front.
  int64_t front_size() const {
    return norm_ && norm_->has_norm ? 3 * vectors() * panels_.lanes : 0;
  }
  /// What is in front. A batch norm's constants go to `memory`. Those of missing channels are zero,
  /// which keeps them zero.
  std::optional<NormCall> FrontOf(const Execution& execution, float* memory) const {
    if (!norm_) return {};
    if (!norm_->has_norm) return NormCall{nullptr, nullptr, nullptr, norm_->front};
    const size_t at = norm_->mean_input();
    const int64_t step = vectors() * panels_.lanes;
    float *mean = memory, *factor = mean + step, *bias = factor + step;
    std::fill_n(memory, front_size(), 0.0f);
    std::copy_n(execution.in<float>(at), channels(), mean);
    FindFactors(execution.in<float>(at + 1), execution.in_or_null<float>(at + 2), norm_->epsilon,
                channels(), factor);
    if (norm_->has_bias) std::copy_n(execution.in<float>(at + 3), channels(), bias);
    return NormCall{mean, factor, bias, norm_->front};
  }

  /// Vectors of a panel: as many as have their rows in a cache, but those of groups have many
  /// weights.
  int64_t MostVectors(int64_t lanes) const {
    constexpr int64_t kMostOfGroups = 4;
    const int64_t rows =
        static_cast<int64_t>(sizeof(float)) * lanes * (held_ + 1) * across_.columns;
    const int64_t most = std::max<int64_t>(SecondLevelCacheBytes() / 2 / rows, 1);
    return group_ == 1 ? most : std::min(most, kMostOfGroups);
  }
  /// Rows of dy that add to sums in registers one after the other: as many as read few rows of x.
  int64_t GradientRows(int64_t lanes) const {
    constexpr int64_t kBytes = 12 << 10;
    if (group_ == 1 || spec_.pass != ConvPass::kBackwardW) return 1;
    const int64_t row = static_cast<int64_t>(sizeof(float)) * lanes * across_.columns;
    return std::clamp<int64_t>((kBytes / row - down_.Held(1)) / down_.stride, 1, kMostGradientRows);
  }

  /// The parts of all images that are walked by rows: a panel of a block of an image.
  struct Plane {
    int64_t image, block, index;
    Panel panel;
    int64_t first;   ///< vector of the block
    int64_t vector;  ///< among those of all blocks
  };
  int64_t planes() const { return x_.blocks * panels_.count; }  // of an image
  Plane PlaneAt(int64_t plane) const {
    const int64_t block = plane / panels_.count % x_.blocks, index = plane % panels_.count;
    const int64_t first = panels_.first(index);
    return {plane / planes(),   block, index,
            panels_.Get(index), first, block * panels_.vectors + first};
  }
  /// Offset of a plane in an image of this size.
  int64_t OffsetOf(const Plane& plane, const Lanes& image) const {
    return plane.image * image.image_step + plane.block * image.block_step +
           plane.first * panels_.lanes;
  }
  /// Calls f(channel, lane) for the channels of a vector.
  template <class F>
  void ForLanes(int64_t vector, const F& f) const {
    const int64_t block = vector / panels_.vectors, v = vector % panels_.vectors;
    const int64_t first = block * x_.lanes + v * panels_.lanes;
    const int64_t count =
        std::min({panels_.lanes, x_.lanes - v * panels_.lanes, channels() - first});
    for (int64_t lane = 0; lane < count; ++lane) f(first + lane, lane);
  }

  const ConvSpec spec_;
  const std::optional<NormConvSpec> norm_;  // in front
  const int64_t group_;
  const Loops<T> loops_;
  const bool gradient_;  // of the input
  const Lanes x_, y_;
  const LayoutPtr x_layout_, y_layout_;
  const Down down_;
  const Across across_;
  const int64_t gradient_rows_, held_;
  const Panels panels_;
  const int64_t threads_;
};

/// Computes y from x, or dx from dy.
template <class T>
class FilterPlan final : public DepthwisePlan<T> {
  using Base = DepthwisePlan<T>;
  using Base::across_, Base::down_, Base::gradient_, Base::group_, Base::panels_, Base::spec_,
      Base::threads_;
  using typename Base::Plane;

 public:
  FilterPlan(const ConvSpec& spec, const NormConvSpec* norm, int64_t lanes, LaneTag tag)
      : Base(spec, norm, lanes, tag),
        w_layout_(KeptLayout()),
        compute_(gradient_ && !across_.turned ? this->loops_.input_gradient
                                              : this->loops_.forward) {}

  LayoutPtr input_layout(size_t i) const override {
    if (i == 0) return gradient_ ? this->y_layout_ : this->x_layout_;
    if (i == 1) return w_layout_;
    return spec_.has_add && i == spec_.add_input() ? this->y_layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t) const override {
    return gradient_ ? this->x_layout_ : this->y_layout_;
  }
  int inplace_input(size_t) const override {
    return spec_.has_add ? static_cast<int>(spec_.add_input()) : -1;
  }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(shared_size() + threads_ * this->window_size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    auto* bias = static_cast<float*>(execution.workspace);
    float* front = bias + this->vectors() * panels_.lanes;
    float* weights = front + this->front_size();
    float* windows = bias + shared_size();
    PrepareBias(execution, bias);
    if (!w_layout_) Prepare(execution.in<T>(1), weights);
    const Call call{execution.in<T>(0),
                    w_layout_ ? execution.in<float>(1) : weights,
                    bias,
                    this->FrontOf(execution, front),
                    spec_.has_add ? execution.in<T>(spec_.add_input()) : nullptr,
                    execution.out<T>(0)};
    const int64_t rows = to().images * this->planes() * to().height;
    // No more pieces than planes: one that begins inside a plane reads the rows above it again.
    const int64_t share = threads_ > 1 ? to().images * this->planes() / threads_ : 1;
    const int64_t pieces = threads_ * std::clamp<int64_t>(share, 1, kPiecesOfShare);
    ParallelItems(pieces, threads_, [&](Items& items) {
      for (const int64_t i : items)
        RunRows(call, rows * i / pieces, rows * (i + 1) / pieces,
                windows + items.thread() * this->window_size());
    });
  }

 private:
  struct Call {
    const T* from;
    const float *weights, *bias;
    std::optional<NormCall> front;
    const T* add;
    T* to;
  };

  const Lanes& to() const { return gradient_ ? this->x_ : this->y_; }
  int64_t shared_size() const {
    const int64_t weights = w_layout_ ? 0 : this->vectors() * this->weights_size();
    return this->vectors() * panels_.lanes + this->front_size() + weights;
  }

  /// The layout of constant weights in which the loops read them; null: none.
  LayoutPtr KeptLayout() const {
    const int64_t lanes = panels_.lanes;
    if (!spec_.constant_weights || gradient_ || group_ != 1 || spec_.dtype != kFloat32 ||
        this->vectors() != CeilDivide(this->channels(), lanes))
      return nullptr;
    return LayoutOfFilters(spec_, lanes);
  }

  /// Without a bias, or a channel, zeros.
  void PrepareBias(const Execution& execution, float* bias) const {
    const bool has_bias = spec_.geometry.bias && !gradient_;
    if (has_bias) LoadStrided(execution.in<T>(2), 1, this->channels(), bias);
    const int64_t filled = has_bias ? this->channels() : 0;
    std::fill_n(bias + filled, this->vectors() * panels_.lanes - filled, 0.0f);
  }

  /// Arranges weights as the loops read them; without a channel, zeros.
  void Prepare(const T* w, float* weights) const {
    const Recorder& r = spec_.geometry;
    const int64_t lanes = panels_.lanes, height = r.kernel_h(), width = r.kernel_w();
    ParallelFor(this->vectors(), kParallelGrain / this->weights_size() + 1,
                [&](int64_t begin, int64_t end) {
                  std::array<const T*, kMostLanes> filters;  // of the lanes
                  for (int64_t v = begin; v < end; ++v) {
                    float* to = weights + v * this->weights_size();
                    std::fill_n(to, this->weights_size(), 0.0f);
                    for (int64_t term = 0; term < group_; ++term, to += this->row_size()) {
                      size_t count = 0;
                      this->ForLanes(v, [&](int64_t channel, int64_t) {
                        const int64_t own = channel % group_;
                        const int64_t filter = gradient_ ? (channel - own + term) * group_ + own
                                                         : channel * group_ + term;
                        filters[count++] = w + filter * height * width;
                      });
                      for (int64_t row = 0; row < height; ++row) {
                        for (int64_t column = 0; column < width; ++column) {
                          const int64_t place = across_.turned ? width - 1 - column : column;
                          float* vector = to + row * group_ * this->row_size() + place * lanes;
                          for (size_t lane = 0; lane < count; ++lane)
                            vector[lane] = Convert<float>(*filters[lane]++);
                        }
                      }
                    }
                  }
                });
  }

  /// Rows of results [begin, end), counted over all planes.
  void RunRows(const Call& call, int64_t begin, int64_t end, float* buffer) const {
    const Lanes& image = to();
    const bool stream = Streams(call.to);
    Window<T> window = this->NewWindow(call.front, buffer);
    std::array<const float*, kMostRows> sources, weights;
    Plane plane = {};
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at % image.height;
      if (at == begin || row == 0) {
        plane = this->PlaneAt(at / image.height);
        window.Enter(call.from + this->OffsetOf(plane, this->source()), plane.panel, plane.vector);
      }
      window.Advance(down_.Of(row));
      size_t count = 0;
      for (int64_t tap = 0; tap < down_.taps; ++tap) {
        const int64_t source = down_.Row(row, tap);
        if (source < 0) continue;
        weights[count] =
            call.weights + plane.vector * this->weights_size() + tap * group_ * this->row_size();
        sources[count++] = window.Row(source);
      }
      const int64_t place = this->OffsetOf(plane, image) + row * image.row_step;
      compute_({.panel = plane.panel,
                .tiles = across_.tiles,
                .terms = group_,
                .rows = static_cast<int64_t>(count),
                .sources = sources.data(),
                .weights = weights.data(),
                .source_step = window.vector_step(),
                .weight_step = this->weights_size(),
                .bias = call.bias + plane.vector * panels_.lanes,
                .add = call.add ? call.add + place : nullptr,
                .after = spec_.activation,
                .stream = stream,
                .to = call.to + place,
                .columns = image.width,
                .column_step = image.column_step,
                .skipped = across_.skipped,
                .next = window.Ahead(down_.Of(std::min(row + 1, image.height - 1)))});
    }
    if (stream) this->loops_.fence();
  }

  /// Whether results go past the caches: where they are larger, and lines are written as a whole.
  bool Streams(const T* results) const {
    constexpr int64_t kLine = 64;
    const int64_t vector = panels_.lanes * static_cast<int64_t>(sizeof(T));
    const bool lines = vector % kLine == 0 || to().column_step == panels_.lanes;
    return lines && to().column_step % panels_.lanes == 0 &&
           reinterpret_cast<uintptr_t>(results) % kLine == 0 &&
           to().images * to().image_step * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes;
  }

  const LayoutPtr w_layout_;  // of kept weights; null: they are arranged in each call
  void (*compute_)(const RowCall<T>&);
};

/// Computes dW and db from dy and x. The rows of dy are divided into slices, by the geometry alone,
/// and the sums of the slices are added in their order.
template <class T>
class GradientPlan final : public DepthwisePlan<T> {
  using Base = DepthwisePlan<T>;
  using Base::down_, Base::gradient_rows_, Base::group_, Base::panels_, Base::spec_, Base::threads_;

 public:
  GradientPlan(const ConvSpec& spec, const NormConvSpec* norm, int64_t lanes, LaneTag tag)
      : Base(spec, norm, lanes, tag), slices_(Slices()) {
    if (spec.geometry.bias) bias_ = MakeChannelSums(tag, spec.geometry.output_shape(), spec.dtype);
  }

  LayoutPtr input_layout(size_t i) const override {
    return i == 0 ? this->y_layout_ : i == 1 ? this->x_layout_ : nullptr;
  }
  size_t workspace_bytes() const override {
    return OwnBytes() + (bias_ ? bias_->workspace_bytes() : 0);
  }

  void Run(const Execution& execution) const override {
    auto* sums = static_cast<float*>(execution.workspace);
    float* windows = sums + slices_ * sums_size();
    const std::optional<NormCall> front =
        this->FrontOf(execution, windows + threads_ * this->window_size());
    ParallelItems(slices_ * this->planes(), threads_, [&](Items& items) {
      Window<T> window = this->NewWindow(front, windows + items.thread() * this->window_size());
      for (const int64_t i : items)
        SumSlice(execution.in<T>(0), execution.in<T>(1), i / this->planes(), i % this->planes(),
                 window, sums);
    });
    StoreSums(sums, execution.out<T>(0));
    if (!bias_) return;
    bias_->Run({execution.device, execution.inputs.first(1), execution.outputs.subspan(1, 1),
                execution.scalars, static_cast<char*>(execution.workspace) + OwnBytes()});
  }

 private:
  int64_t sums_size() const { return this->vectors() * this->weights_size(); }
  int64_t rows() const { return this->y_.images * this->y_.height; }
  size_t OwnBytes() const {
    const int64_t floats =
        slices_ * sums_size() + threads_ * this->window_size() + this->front_size();
    return RoundUp(static_cast<size_t>(floats) * sizeof(float), size_t{64});
  }
  /// Enough for many threads, and for short sums in float32. Slices have at least 8 rows, and their
  /// sums are small beside the images.
  int64_t Slices() const {
    const int64_t elements = this->x_.images * this->x_.image_step;
    const int64_t most = std::max<int64_t>(8, CeilDivide(int64_t{64}, this->planes()));
    return std::clamp<int64_t>(std::min(rows() / 8, elements / (8 * sums_size())), 1, most);
  }

  void SumSlice(const T* dy, const T* x, int64_t slice, int64_t index, Window<T>& window,
                float* sums) const {
    const Lanes& y = this->y_;
    auto plane = this->PlaneAt(index);
    float* own = sums + slice * sums_size() + plane.vector * this->weights_size();
    std::fill_n(own, plane.panel.vectors * this->weights_size(), 0.0f);
    const int64_t begin = rows() * slice / slices_, end = rows() * (slice + 1) / slices_;
    for (int64_t at = begin, count; at < end; at += count) {
      const int64_t row = at % y.height;
      count = std::min({gradient_rows_, end - at, y.height - row});
      if (at == begin || row == 0) {
        plane.image = at / y.height;
        window.Enter(x + this->OffsetOf(plane, this->x_), plane.panel, plane.vector);
      }
      window.Advance({down_.Of(row).first, down_.Of(row + count - 1).last});
      const T* from = dy + this->OffsetOf(plane, y) + row * y.row_step;
      if (group_ == 1)
        SumRow(plane.panel, row, window, from, own);
      else
        SumRows(plane.panel, row, count, window, from, own);
    }
  }

  /// What is read after the rows before `end`.
  Next Ahead(const Window<T>& window, int64_t end) const {
    return window.Ahead(down_.Of(std::min(end, this->y_.height - 1)));
  }

  void SumRow(const Panel& panel, int64_t row, const Window<T>& window, const T* dy,
              float* sums) const {
    std::array<const float*, kMostRows> sources;
    size_t count = 0;
    int64_t first = 0;  // rows of taps inside the image are consecutive
    for (int64_t tap = 0; tap < down_.taps; ++tap) {
      const int64_t source = down_.Row(row, tap);
      if (source < 0) continue;
      if (count == 0) first = tap;
      sources[count++] = window.Row(source);
    }
    this->loops_.weight_gradient({.panel = panel,
                                  .rows = static_cast<int64_t>(count),
                                  .sources = sources.data(),
                                  .source_step = window.vector_step(),
                                  .dy = dy,
                                  .columns = this->y_.width,
                                  .column_step = this->y_.column_step,
                                  .sums = sums + first * this->row_size(),
                                  .sum_step = this->weights_size(),
                                  .next = Ahead(window, row + 1)});
  }

  void SumRows(const Panel& panel, int64_t row, int64_t count, const Window<T>& window, const T* dy,
               float* sums) const {
    std::array<const float*, kMostGradientRows * kMostRows> sources;
    size_t filled = 0;
    for (int64_t r = row; r < row + count; ++r)
      for (int64_t tap = 0; tap < down_.taps; ++tap) {
        const int64_t source = down_.Row(r, tap);
        sources[filled++] = source < 0 ? nullptr : window.Row(source);
      }
    this->loops_.group_weight_gradient({.panel = panel,
                                        .terms = group_,
                                        .taps = down_.taps,
                                        .rows = count,
                                        .sources = sources.data(),
                                        .source_step = window.vector_step(),
                                        .dy = dy,
                                        .row_step = this->y_.row_step,
                                        .columns = this->y_.width,
                                        .column_step = this->y_.column_step,
                                        .sums = sums,
                                        .sum_step = this->weights_size(),
                                        .next = Ahead(window, row + count)});
  }

  void StoreSums(const float* sums, T* dw) const {
    const int64_t height = spec_.geometry.kernel_h(), width = spec_.geometry.kernel_w();
    ParallelFor(this->vectors(), kParallelGrain / (slices_ * this->weights_size()) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t v = begin; v < end; ++v)
                    this->ForLanes(v, [&](int64_t channel, int64_t lane) {
                      const float* from = sums + v * this->weights_size() + lane;
                      for (int64_t row = 0; row < height; ++row) {
                        for (int64_t term = 0; term < group_; ++term) {
                          T* to = dw + ((channel * group_ + term) * height + row) * width;
                          for (int64_t column = 0; column < width; ++column) {
                            to[column] = SumOfSlices(from);
                            from += panels_.lanes;
                          }
                        }
                      }
                    });
                });
  }
  T SumOfSlices(const float* from) const {
    double sum = 0;
    for (int64_t s = 0; s < slices_; ++s) sum += static_cast<double>(from[s * sums_size()]);
    return Convert<T>(sum);
  }

  const int64_t slices_;
  PlanPtr bias_;
};

template <class T>
PlanPtr MakePlanOf(const ConvSpec& spec, const NormConvSpec* norm, int64_t lanes) {
  const LaneTag tag = TagFor(spec, lanes);
  if (tag == LaneTag::kNChw8c) lanes = 8;
  if (spec.pass == ConvPass::kBackwardW)
    return std::make_shared<GradientPlan<T>>(spec, norm, lanes, tag);
  return std::make_shared<FilterPlan<T>>(spec, norm, lanes, tag);
}

}  // namespace

Loops<float> LoopsOfChannels(const ConvSpec& spec, int64_t lanes) {
  return LoopsFor<float>(spec, lanes);
}

LayoutPtr LayoutOfFilters(const ConvSpec& spec, int64_t lanes) {
  const bool signal = spec.geometry.spatial == 1;
  return MakeBlockedLayout(
      Placement::Of(spec.geometry.weight_shape(),
                    signal ? std::vector{0, 1, 2} : std::vector{0, 1, 2, 3}, {{0, lanes}}),
      spec.dtype, signal ? "oiw" : "oihw");
}

std::string Refuses(const ConvSpec& spec, int64_t lanes) {
  const Recorder& r = spec.geometry;
  if (lanes < 8) return "depthwise loops are for CPUs with AVX2";
  if (spec.pass == ConvPass::kBackwardB) return "depthwise loops are for the other passes";
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.plain) return "depthwise loops are for channels-last and blocked images";
  if (r.spatial == 3) return "depthwise loops are for one or two dimensions";
  if (r.group == 1 || r.in_channels != r.out_channels || !HasLoopsOfGroup(GroupOf(spec)))
    return "depthwise loops are for groups of 1, 2, 4 and 8 channels on both sides";
  if (!HasLoops(r.kernel_w(), r.stride_w()) || r.dilation_w() != 1 || r.kernel_h() > kMostRows)
    return "depthwise loops are for kernels of 3, 5 and 7 columns, of stride 1 and 2 and dilation "
           "1";
  if (r.input_shape().Count() == 0 || r.output_shape().Count() == 0)
    return "there is nothing to compute";
  return "";
}

PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes) {
  if (spec.dtype == kBFloat16) return MakePlanOf<BFloat16>(spec, nullptr, lanes);
  return MakePlanOf<float>(spec, nullptr, lanes);
}

std::string Refuses(const NormConvSpec& spec, int64_t lanes) {
  if (spec.dtype != kFloat32) return "rows are floats behind what is in front, and not rounded";
  if (GroupOf(spec) != 1) return "only single channels are computed behind what is in front";
  if (formula::FactsOf(spec.front.kind).is_slow)
    return "the activation takes longer to compute twice than to write and read";
  if (!formula::KeepsZero(spec.front))
    return "the activation of zero, which fills up vectors, is not zero";
  return Refuses(static_cast<const ConvSpec&>(spec), lanes);
}

PlanPtr MakePlan(const NormConvSpec& spec, int64_t lanes) {
  return MakePlanOf<float>(spec, &spec, lanes);
}

}  // namespace singa::cpu::depthwise
