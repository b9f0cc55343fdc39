// Our own batch normalisation, on the layouts of oneDNN's convolutions and on (N, C). It takes the
// minimum of two passes over the tensors, one for the sums and one for the result, with residual,
// activation and their gradients fused. oneDNN's primitive reads x three times, does not fuse the
// residual, and keeps a private mask for ReLU. Row-major images use the reference kernel, because
// their channels are not contiguous.
//
// Sums. A single pass must not sum x and x²: if the mean is far from zero, their difference
// cancels. Instead, 64 rows at a time are summed around the first of them, the shift. The shift is
// at most √63 standard deviations of these rows away from their mean, so Σ (x − shift)² loses only
// a few bits in float32. These sums are then added in double, around the channel's first value. The
// division into sums depends on the shape alone, and so do the results.
//
// Caches. The second pass runs backwards, because the end of x is still in the caches. With blocked
// layouts and enough blocks, a thread does both passes of a block before the next block. Results
// larger than the caches are written with non-temporal stores.

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "backend/cpu/norm/batchnorm_loops.h"
#include "backend/cpu/norm/batchnorm_panels.h"
#include "core/device/cache_size.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu {
namespace {

using Tag = LaneTag;

/// Pixels that a row of the loops has: blocks of 16 bfloat16 numbers are half of a vector.
template <class T>
int64_t JoinedPixels(const Shape& shape, Tag tag) {
  const bool is_even = shape.Count(2, shape.rank()) % 2 == 0;
  return std::is_same_v<T, BFloat16> && tag == Tag::kNChw16c && is_even ? 2 : 1;
}

/// Constants of each channel. Those of padding channels are zero, which keeps the padding zero.
class Constants {
 public:
  Constants(const Panels& g, void* memory) : step_(Step(g)), values_(static_cast<float*>(memory)) {}
  static size_t Bytes(const Panels& g, size_t count) {
    return count * static_cast<size_t>(Step(g)) * sizeof(float);
  }
  float* operator[](size_t i) const { return values_ + static_cast<int64_t>(i) * step_; }

 private:
  static int64_t Step(const Panels& g) { return g.panels * g.longest_row() + kApart; }

  int64_t step_;
  float* values_;
};

/// Common to both directions.
class BatchNormPlan : public Plan {
 public:
  template <class Spec>
  BatchNormPlan(const Spec& spec, Tag tag, int64_t joined, int64_t element_bytes)
      : Plan("cpu"),
        panels_(spec.shape, tag, joined),
        epsilon_(spec.epsilon),
        layout_(spec.x_layout),
        stream_(panels_.row_step * element_bytes % 16 == 0 &&
                panels_.elements() * element_bytes >= kStreamedBytes) {}

 protected:
  // The constants of BatchNormAffine.
  enum : size_t { kMean, kFactor, kBias, kAffineCount };

  size_t TotalsBytes() const {
    return static_cast<size_t>(panels_.panels * panels_.chunks * panels_.longest_row()) * 2 *
           sizeof(double);
  }
  /// Two sums for each element of a chunk's rows. They precede the constants in the workspace.
  double* Totals(const Execution& execution, int64_t panel, int64_t chunk) const {
    return static_cast<double*>(execution.workspace) +
           (panel * panels_.chunks + chunk) * 2 * panels_.longest_row();
  }
  /// Where the constants of a panel begin.
  int64_t Place(int64_t panel) const { return panel * panels_.longest_row(); }
  AffineRow Row(const Constants& constants, int64_t panel) const {
    const int64_t c = Place(panel);
    return {constants[kMean] + c, constants[kFactor] + c, constants[kBias] + c};
  }
  /// Sets the constants of BatchNormAffine for the channels of one panel. T is the element type.
  template <class T>
  void SetAffine(const Constants& constants, int64_t panel, const float* mean, const float* var,
                 const float* scale, const float* bias) const {
    const int64_t first = panels_.first_channel(panel), n = panels_.filled(panel);
    const int64_t place = Place(panel);
    for (size_t i : {kMean, kFactor, kBias}) std::fill_n(constants[i] + place, panels_.width, 0.0f);
    std::copy_n(mean + first, n, constants[kMean] + place);
    FindFactors(var + first, scale ? scale + first : nullptr, epsilon_, n,
                constants[kFactor] + place);
    if (bias) std::copy_n(bias + first, n, constants[kBias] + place);
    for (size_t i : {kMean, kFactor, kBias}) {
      ToLoopOrder<T>(panels_.row_width(panel), constants[i] + place);
      Spread(panel, constants[i] + place);
    }
  }
  /// From the channels of a panel to the elements of its rows.
  void Spread(int64_t panel, float* numbers) const {
    if (panels_.joined == 2) Repeat(panels_.row_width(panel), numbers);
  }
  /// Copies a panel's numbers, which are in the loops' order for T, into a tensor of all channels.
  template <class T>
  void Put(int64_t panel, Buffer& numbers, float* tensor) const {
    FromLoopOrder<T>(panels_.row_width(panel), numbers.data());
    std::copy_n(numbers.begin(), panels_.filled(panel), tensor + panels_.first_channel(panel));
  }
  /// Adds the sums of all chunks of a panel to those of chunk 0, in order, and those of joined
  /// pixels.
  double* AddUp(const Execution& execution, int64_t panel) const {
    double* total = Totals(execution, panel, 0);
    for (int64_t chunk = 1; chunk < panels_.chunks; ++chunk) {
      const double* more = Totals(execution, panel, chunk);
      for (int64_t i = 0; i < 2 * panels_.longest_row(); ++i) total[i] += more[i];
    }
    if (panels_.joined == 2) AddRepeated(panels_.width, total);
    return total;
  }

  /// Calls, in parallel, sum(panel, chunk) for all chunks if `sums`, then finish(panel), then
  /// apply(panel, chunk) if `results`.
  template <class Sum, class Finish, class Apply>
  void InTwoPasses(bool sums, const Sum& sum, const Finish& finish, bool results,
                   const Apply& apply) const {
    const Panels& g = panels_;
    const int64_t threads = NumThreads();
    if (g.panels > 1 && (g.panels % threads == 0 || g.panels >= 4 * threads)) {
      ParallelFor(g.panels, kParallelGrain / (g.values() * g.width) + 1,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t panel = begin; panel < end; ++panel) {
                      for (int64_t chunk = 0; sums && chunk < g.chunks; ++chunk) sum(panel, chunk);
                      finish(panel);
                      for (int64_t chunk = g.chunks - 1; results && chunk >= 0; --chunk)
                        apply(panel, chunk);
                    }
                    if (stream_) StreamFence();
                  });
      return;
    }
    const int64_t all = g.panels * g.chunks;
    const int64_t grain = kParallelGrain / (g.chunk * g.longest_row()) + 1;
    ParallelFor(sums ? all : 0, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum(i / g.chunks, i % g.chunks);
      if (stream_) StreamFence();
    });
    for (int64_t panel = 0; panel < g.panels; ++panel) finish(panel);
    // What the sums have read last is still in a cache.
    ParallelFor(
        results ? all : 0, grain,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = end - 1; i >= begin; --i) apply(i / g.chunks, i % g.chunks);
          if (stream_) StreamFence();
        },
        Order::kBackward);
  }

  Panels panels_;
  double epsilon_;
  LayoutPtr layout_;
  bool stream_;
};

/// T is the element type of the images.
template <class T>
class ForwardPlan final : public BatchNormPlan {
 public:
  template <class Spec>
  ForwardPlan(const Spec& spec, Tag tag)
      : BatchNormPlan(spec, tag, JoinedPixels<T>(spec.shape, tag), sizeof(T)),
        training_(spec.training),
        need_y_(!std::is_same_v<Spec, BatchNormStatisticsSpec>),
        activation_(spec.activation),
        add_(spec.has_add) {}

  std::string Describe() const override {
    return std::string("cpu batch norm") + (need_y_ ? "" : " statistics") + (add_ ? " + add" : "") +
           ActivationSuffix(activation_);
  }
  size_t workspace_bytes() const override {
    return Constants::Bytes(panels_, kAffineCount) + (training_ ? TotalsBytes() : 0);
  }
  LayoutPtr input_layout(size_t i) const override { return i == 0 || i == 5 ? layout_ : nullptr; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  /// Training keeps x for backward; the residual is not needed again.
  int inplace_input(size_t i) const override { return i > 0 ? -1 : add_ ? 5 : 0; }

  void Run(const Execution& execution) const override {
    const T *x = execution.in<T>(0), *add = execution.in_or_null<T>(5);
    T* y = execution.out_or_null<T>(0);
    const Constants constants(
        panels_, static_cast<char*>(execution.workspace) + (training_ ? TotalsBytes() : 0));
    const float* mean = training_ ? execution.out<float>(1) : execution.in<float>(3);
    const float* var = training_ ? execution.out<float>(2) : execution.in<float>(4);
    InTwoPasses(
        training_, [&](int64_t panel, int64_t chunk) { Sum(execution, x, panel, chunk); },
        [&](int64_t panel) {
          if (training_) Statistics(execution, x, panel);
          if (need_y_)
            SetAffine<T>(constants, panel, mean, var, execution.in_or_null<float>(1),
                         execution.in_or_null<float>(2));
        },
        need_y_,
        [&](int64_t panel, int64_t chunk) {
          Normalize(x, add, panel, chunk, Row(constants, panel), y);
        });
    if (!training_) return;
    UpdateRunningStatistics<float>(panels_.channels, panels_.values(), execution.scalars.v[0], mean,
                                   var, execution.out_or_null<float>(3),
                                   execution.out_or_null<float>(4));
  }

 private:
  /// Sums one chunk around the panel's first pixel.
  void Sum(const Execution& execution, const T* x, int64_t panel, int64_t chunk) const {
    const int64_t width = panels_.row_elements(panel);
    Buffer first_row, origin_row, sum, squares;
    const float* origin =
        Floats(x + panel * panels_.panel_step, panels_.row_width(panel), origin_row);
    if (origin == origin_row.data()) Spread(panel, origin_row.data());
    double* total = Totals(execution, panel, chunk);
    std::fill_n(total, 2 * panels_.longest_row(), 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      const float* shift = nullptr;
      std::fill_n(sum.begin(), width, 0.0f);
      std::fill_n(squares.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        if (!shift) shift = Floats(x + offset, width, first_row);
        loops_.add_deviations(x + offset, rows, width, shift, sum.data(), squares.data());
      });
      AddToTotals(end - begin, width, shift, origin, sum.data(), squares.data(), total);
    });
  }

  void Statistics(const Execution& execution, const T* x, int64_t panel) const {
    const int64_t width = panels_.row_width(panel);
    Buffer row, mean, var;
    const float* origin = Floats(x + panel * panels_.panel_step, width, row);
    FindStatistics(AddUp(execution, panel), origin, panels_.values(), width, mean.data(),
                   var.data());
    Put<T>(panel, mean, execution.out<float>(1));
    Put<T>(panel, var, execution.out<float>(2));
  }

  void Normalize(const T* x, const T* add, int64_t panel, int64_t chunk, const AffineRow& affine,
                 T* y) const {
    const int64_t width = panels_.row_elements(panel);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        loops_.normalize(x + offset, add ? add + offset : nullptr, rows, width, affine, activation_,
                         y + offset, stream_);
      });
    });
  }

  const BatchNormLoops<T>& loops_ = BatchNormLoopsOfCpu<T>();
  bool training_, need_y_;
  Activation activation_;
  bool add_;
};

template <class T>
class BackwardPlan final : public BatchNormPlan {
 public:
  BackwardPlan(const BatchNormBackwardSpec& spec, Tag tag)
      : BatchNormPlan(spec, tag, JoinedPixels<T>(spec.shape, tag), sizeof(T)),
        training_(spec.training),
        need_x_(spec.need_x),
        need_scale_(spec.need_scale),
        need_add_(spec.need_add),
        has_dy2_(spec.has_dy2),
        activation_(spec.activation) {}

  std::string Describe() const override {
    return std::string("cpu batch norm") + (need_add_ ? " + add" : "") +
           ActivationSuffix(activation_) + (has_dy2_ ? ", of a sum" : "");
  }
  size_t workspace_bytes() const override {
    return Constants::Bytes(panels_, kCount) + TotalsBytes();
  }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 || i == 1 || i == 6 || i == BatchNormBackwardSpec::kDy2 ? layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override { return i == 0 || i == 3 ? layout_ : nullptr; }
  /// If dadd has taken dy's memory, dx may take x's.
  int inplace_input(size_t i) const override { return i == 3 ? 0 : i > 0 ? -1 : need_add_ ? 1 : 0; }

  void Run(const Execution& execution) const override {
    const T *dy = execution.in<T>(0), *x = execution.in<T>(1), *y = execution.in_or_null<T>(6);
    const T* dy2 = has_dy2_ ? execution.in<T>(BatchNormBackwardSpec::kDy2) : nullptr;
    T *dx = execution.out_or_null<T>(0), *dadd = execution.out_or_null<T>(3);
    const Constants constants(panels_, static_cast<char*>(execution.workspace) + TotalsBytes());
    for (int64_t panel = 0; panel < panels_.panels; ++panel)
      SetAffine<T>(constants, panel, execution.in<float>(3), execution.in<float>(4),
                   execution.in_or_null<float>(2), execution.in_or_null<float>(5));
    // The first pass may write the gradient in front of the activation, so that the second one has
    // no activation: to dadd, or to dx where the slope takes long to compute.
    const bool sums = training_ || need_scale_ || need_add_;
    T* slopes = need_add_ ? dadd : sums && need_x_ && IsSlow(activation_) ? dx : nullptr;
    const T* g = slopes ? slopes : dy;
    const Activation activation = slopes ? Activation() : activation_;
    InTwoPasses(
        sums,
        [&](int64_t panel, int64_t chunk) {
          Sum(execution, dy, dy2, x, y, panel, chunk, Row(constants, panel), slopes);
        },
        [&](int64_t panel) { Finish(execution, constants, panel); }, need_x_,
        [&](int64_t panel, int64_t chunk) {
          Gradient(activation, g, x, y, constants, panel, chunk, dx);
        });
  }

 private:
  enum : size_t { kConstant = kAffineCount, kSlope, kCount };

  /// Whether computing the slope again takes longer than writing and reading it. BFloat16 would
  /// round it.
  static bool IsSlow(const Activation& activation) {
    return std::is_same_v<T, float> && formula::FactsOf(activation.kind).is_gate;
  }

  void Sum(const Execution& execution, const T* dy, const T* dy2, const T* x, const T* y,
           int64_t panel, int64_t chunk, const AffineRow& affine, T* slopes) const {
    const int64_t width = panels_.row_elements(panel);
    Buffer sum, products;
    double* total = Totals(execution, panel, chunk);
    std::fill_n(total, 2 * panels_.longest_row(), 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      std::fill_n(sum.begin(), width, 0.0f);
      std::fill_n(products.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        const T* sign = y ? y + offset : nullptr;
        if (need_add_) {
          loops_.add_gradients_of_sum(dy + offset, dy2 ? dy2 + offset : nullptr, x + offset, sign,
                                      rows, width, affine.mean, sum.data(), products.data(),
                                      slopes + offset, stream_);
        } else {
          loops_.add_gradients(activation_, dy + offset, x + offset, sign, rows, width, affine,
                               sum.data(), products.data(), slopes ? slopes + offset : nullptr);
        }
      });
      AddToTotals(width, sum.data(), products.data(), total);
    });
  }

  /// Computes dscale, dbias, and the constants of dx.
  void Finish(const Execution& execution, const Constants& constants, int64_t panel) const {
    const int64_t first = panels_.first_channel(panel), place = Place(panel);
    for (size_t i : {kConstant, kSlope})
      std::fill_n(constants[i] + place, panels_.longest_row(), 0.0f);
    if (!training_ && !need_scale_) return;
    const int64_t width = panels_.row_width(panel), filled = panels_.filled(panel);
    Buffer var, factor, dscale, dbias, constant, slope;
    std::copy_n(execution.in<float>(4) + first, filled, var.begin());
    std::fill(var.begin() + filled, var.begin() + width, 1.0f);  // padding channels
    ToLoopOrder<T>(width, var.data());
    std::copy_n(constants[kFactor] + place, panels_.row_elements(panel), factor.begin());
    if (panels_.joined == 2) TakeRepeated(width, factor.data());
    FindSlopes(AddUp(execution, panel), var.data(), factor.data(), epsilon_, panels_.values(),
               width, dscale.data(), dbias.data(), constant.data(), slope.data());
    if (training_) {
      std::copy_n(constant.begin(), width, constants[kConstant] + place);
      std::copy_n(slope.begin(), width, constants[kSlope] + place);
      for (size_t i : {kConstant, kSlope}) Spread(panel, constants[i] + place);
    }
    if (need_scale_) {
      Put<T>(panel, dscale, execution.out<float>(1));
      Put<T>(panel, dbias, execution.out<float>(2));
    }
  }

  void Gradient(const Activation& activation, const T* dy, const T* x, const T* y,
                const Constants& constants, int64_t panel, int64_t chunk, T* dx) const {
    const int64_t width = panels_.row_elements(panel), place = Place(panel);
    const AffineRow affine = Row(constants, panel);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        loops_.gradient(activation, dy + offset, x + offset, y ? y + offset : nullptr, rows, width,
                        affine, constants[kConstant] + place, constants[kSlope] + place,
                        dx + offset, stream_);
      });
    });
  }

  const BatchNormLoops<T>& loops_ = BatchNormLoopsOfCpu<T>();
  bool training_, need_x_, need_scale_, need_add_, has_dy2_;
  Activation activation_;
};

/// x's layout, if it is supported.
template <class Spec>
std::optional<Tag> TagOf(const Spec& spec) {
  // A row-major (N, C, 1, 1) has contiguous channels.
  if (!spec.x_layout && spec.shape.Count(2, spec.shape.rank()) == 1) return Tag::kNhwc;
  return LaneTagOf(spec.x_layout, spec.shape, spec.dtype);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.shape.Count() == 0) return "there is nothing to compute";
  if (spec.activation.low > 0 || spec.activation.high < 0)
    return "the activation of zero, which fills up blocks, is not zero";
  if (TagOf(spec)) return "";
  return spec.x_layout ? "the channels are not innermost"
                       : "the plain kernel is faster on row-major images";
}

template <class Spec, template <class T> class SpecPlan>
PlanOrReason Make(const Spec& spec) {
  const Tag tag = *TagOf(spec);
  if (spec.dtype == kBFloat16) return std::make_shared<SpecPlan<BFloat16>>(spec, tag);
  return std::make_shared<SpecPlan<float>>(spec, tag);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<BatchNormForwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses, .make = Make<BatchNormForwardSpec, ForwardPlan>});
  Register<BatchNormStatisticsSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses, .make = Make<BatchNormStatisticsSpec, ForwardPlan>});
  Register<BatchNormBackwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses, .make = Make<BatchNormBackwardSpec, BackwardPlan>});
}

}  // namespace singa::cpu
