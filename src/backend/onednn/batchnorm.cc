// Batch normalisation of our own, on the layouts in which oneDNN's convolutions leave their results
// and on (N, C): in two passes over its tensors, the least there can be, one for the sums and one
// for the result, with residual, ReLU and their gradients inside. oneDNN's primitive reads x three
// times, adds nothing, and keeps a mask of its own for ReLU. Row-major images stay with the plain
// kernel: their channels do not lie side by side.
//
// Sums. A single pass may not sum x and x²: where the mean is far from zero their difference has no
// digits left. Rows are taken 64 at a time; the first of them is the shift. Whatever the data, it
// is at most √63 standard deviations of those 64 away from their mean, so Σ (x − shift)² loses no
// more than a few bits in float32. The 64 rows' sums then go into double, around the channel's very
// first value. Where the sums are cut depends on the shape alone, and so do the results.
//
// Caches. The second pass goes backwards: the end of x is what the caches still hold. With blocked
// layouts and enough blocks, a thread does both passes of one block before the next. Results larger
// than the caches are written past them.

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/onednn/batchnorm_loops.h"
#include "backend/onednn/batchnorm_panels.h"
#include "backend/onednn/channel_lanes.h"
#include "backend/onednn/register.h"
#include "core/parallel.h"
#include "model/operation/batchnorm_spec.h"
#include "model/operation/kernel.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::onednn {
namespace {

using Tag = dnnl::memory::format_tag;

/// Results of at least that many bytes do not stay in the caches until somebody reads them.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;

/// Numbers of each channel; those that only fill up a block are zero, which keeps the padding zero.
class Constants {
 public:
  Constants(const Panels& g, void* memory)
      : step_(g.panels * g.width + kApart), values_(static_cast<float*>(memory)) {}
  static size_t Bytes(const Panels& g, size_t count) {
    return count * static_cast<size_t>(g.panels * g.width + kApart) * sizeof(float);
  }
  float* operator[](size_t i) const { return values_ + static_cast<int64_t>(i) * step_; }

 private:
  int64_t step_;
  float* values_;
};

/// What both directions have in common.
class BatchNormPlan : public Plan {
 public:
  template <class Spec>
  BatchNormPlan(const Spec& spec, Tag tag, int64_t element_bytes)
      : Plan("onednn"),
        panels_(spec.shape, tag),
        epsilon_(spec.epsilon),
        layout_(spec.x_layout),
        stream_(panels_.row_step * element_bytes % 16 == 0 &&
                panels_.elements() * element_bytes >= kStreamedBytes) {}

 protected:
  // The numbers of BatchNormAffine.
  enum : size_t { kMean, kFactor, kBias, kAffineCount };

  size_t TotalsBytes() const {
    return static_cast<size_t>(panels_.panels * panels_.chunks * panels_.width) * 2 *
           sizeof(double);
  }
  /// Two sums for each channel of a chunk; they lie before the constants.
  double* Totals(const Execution& execution, int64_t panel, int64_t chunk) const {
    return static_cast<double*>(execution.workspace) +
           (panel * panels_.chunks + chunk) * 2 * panels_.width;
  }
  AffineRow Row(const Constants& constants, int64_t panel) const {
    const int64_t c = panels_.first_channel(panel);
    return {constants[kMean] + c, constants[kFactor] + c, constants[kBias] + c};
  }
  /// The constants of BatchNormAffine, for the channels of one panel of elements of type T.
  template <class T>
  void SetAffine(const Constants& constants, int64_t panel, const float* mean, const float* var,
                 const float* scale, const float* bias) const {
    const int64_t first = panels_.first_channel(panel), n = panels_.filled(panel);
    for (size_t i : {kMean, kFactor, kBias}) std::fill_n(constants[i] + first, panels_.width, 0.0f);
    std::copy_n(mean + first, n, constants[kMean] + first);
    FindFactors(var + first, scale ? scale + first : nullptr, epsilon_, n,
                constants[kFactor] + first);
    if (bias) std::copy_n(bias + first, n, constants[kBias] + first);
    for (size_t i : {kMean, kFactor, kBias})
      ToLoopOrder<T>(panels_.row_width(panel), constants[i] + first);
  }
  /// Puts numbers of a panel's channels, in the order of the loops on T, into a tensor of all.
  template <class T>
  void Put(int64_t panel, Buffer& numbers, float* tensor) const {
    FromLoopOrder<T>(panels_.row_width(panel), numbers.data());
    std::copy_n(numbers.begin(), panels_.filled(panel), tensor + panels_.first_channel(panel));
  }
  /// All chunks' sums of a panel, added up in their order into those of chunk 0.
  double* AddUp(const Execution& execution, int64_t panel) const {
    double* total = Totals(execution, panel, 0);
    for (int64_t chunk = 1; chunk < panels_.chunks; ++chunk) {
      const double* more = Totals(execution, panel, chunk);
      for (int64_t i = 0; i < 2 * panels_.width; ++i) total[i] += more[i];
    }
    return total;
  }

  /// Calls sum(panel, chunk) for all if `sums`, then finish(panel), then apply(panel, chunk) if
  /// `results`, in parallel.
  template <class Sum, class Finish, class Apply>
  void InTwoPasses(bool sums, const Sum& sum, const Finish& finish, bool results,
                   const Apply& apply) const {
    const Panels& g = panels_;
    const int64_t threads = NumThreads();
    if (g.panels > 1 && (g.panels % threads == 0 || g.panels >= 4 * threads)) {
      ParallelFor(g.panels, kParallelGrain / (g.rows() * g.width) + 1,
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
    const int64_t grain = kParallelGrain / (g.chunk * g.width) + 1;
    ParallelFor(sums ? all : 0, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum(i / g.chunks, i % g.chunks);
      if (stream_) StreamFence();
    });
    for (int64_t panel = 0; panel < g.panels; ++panel) finish(panel);
    ParallelFor(results ? all : 0, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = end - 1; i >= begin; --i) apply(i / g.chunks, i % g.chunks);
      if (stream_) StreamFence();
    });
  }

  Panels panels_;
  double epsilon_;
  LayoutPtr layout_;
  bool stream_;
};

template <class T>
const T* InputOrNull(const Execution& execution, size_t i) {
  return execution.inputs[i].empty() ? nullptr : execution.in<T>(i);
}
template <class T>
T* OutputOrNull(const Execution& execution, size_t i) {
  return execution.outputs[i].empty() ? nullptr : execution.out<T>(i);
}

/// T is the type of the images' elements.
template <class T>
class ForwardPlan final : public BatchNormPlan {
 public:
  ForwardPlan(const BatchNormForwardSpec& spec, Tag tag)
      : BatchNormPlan(spec, tag, sizeof(T)),
        training_(spec.training),
        relu_(spec.relu),
        add_(spec.has_add) {}

  std::string Describe() const override {
    return std::string("onednn layout, own batch norm") + (add_ ? " + add" : "") +
           (relu_ ? " + relu" : "");
  }
  size_t workspace_bytes() const override {
    return Constants::Bytes(panels_, kAffineCount) + (training_ ? TotalsBytes() : 0);
  }
  LayoutPtr input_layout(size_t i) const override { return i == 0 || i == 5 ? layout_ : nullptr; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  /// Whoever trains keeps x for backward; what was added is not needed again.
  int inplace_input(size_t i) const override { return i > 0 ? -1 : add_ ? 5 : 0; }

  void Run(const Execution& execution) const override {
    const T *x = execution.in<T>(0), *add = InputOrNull<T>(execution, 5);
    T* y = execution.out<T>(0);
    const Constants constants(
        panels_, static_cast<char*>(execution.workspace) + (training_ ? TotalsBytes() : 0));
    const float* mean = training_ ? execution.out<float>(1) : execution.in<float>(3);
    const float* var = training_ ? execution.out<float>(2) : execution.in<float>(4);
    InTwoPasses(
        training_, [&](int64_t panel, int64_t chunk) { Sum(execution, x, panel, chunk); },
        [&](int64_t panel) {
          if (training_) Statistics(execution, x, panel);
          SetAffine<T>(constants, panel, mean, var, InputOrNull<float>(execution, 1),
                       InputOrNull<float>(execution, 2));
        },
        true,
        [&](int64_t panel, int64_t chunk) {
          Normalize(x, add, panel, chunk, Row(constants, panel), y);
        });
    if (!training_) return;
    UpdateRunningStatistics<float>(panels_.channels, panels_.rows(), execution.scalars.v[0], mean,
                                   var, OutputOrNull<float>(execution, 3),
                                   OutputOrNull<float>(execution, 4));
  }

 private:
  /// Sums of one chunk around the panel's first row.
  void Sum(const Execution& execution, const T* x, int64_t panel, int64_t chunk) const {
    const int64_t width = panels_.row_width(panel);
    Buffer first_row, origin_row, sum, squares;
    const float* origin = Floats(x + panel * panels_.panel_step, width, origin_row);
    double* total = Totals(execution, panel, chunk);
    std::fill_n(total, 2 * panels_.width, 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      const float* shift = nullptr;
      std::fill_n(sum.begin(), width, 0.0f);
      std::fill_n(squares.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        if (!shift) shift = Floats(x + offset, width, first_row);
        AddDeviations(x + offset, rows, width, shift, sum.data(), squares.data());
      });
      AddToTotals(end - begin, width, shift, origin, sum.data(), squares.data(), total);
    });
  }

  void Statistics(const Execution& execution, const T* x, int64_t panel) const {
    const int64_t width = panels_.row_width(panel);
    Buffer row, mean, var;
    const float* origin = Floats(x + panel * panels_.panel_step, width, row);
    FindStatistics(AddUp(execution, panel), origin, panels_.rows(), width, mean.data(), var.data());
    Put<T>(panel, mean, execution.out<float>(1));
    Put<T>(panel, var, execution.out<float>(2));
  }

  void Normalize(const T* x, const T* add, int64_t panel, int64_t chunk, const AffineRow& affine,
                 T* y) const {
    const int64_t width = panels_.row_width(panel);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        NormalizeRows(x + offset, add ? add + offset : nullptr, rows, width, affine, relu_,
                      y + offset, stream_);
      });
    });
  }

  bool training_, relu_, add_;
};

template <class T>
class BackwardPlan final : public BatchNormPlan {
 public:
  BackwardPlan(const BatchNormBackwardSpec& spec, Tag tag)
      : BatchNormPlan(spec, tag, sizeof(T)),
        training_(spec.training),
        need_x_(spec.need_x),
        need_scale_(spec.need_scale),
        need_add_(spec.need_add),
        has_dy2_(spec.has_dy2),
        mask_(!spec.relu   ? ReluMask::kNone
              : spec.has_y ? ReluMask::kFromY
                           : ReluMask::kFromX) {}

  std::string Describe() const override {
    return std::string("onednn layout, own batch norm") + (need_add_ ? " + add" : "") +
           (mask_ != ReluMask::kNone ? " + relu" : "") + (has_dy2_ ? ", of a sum" : "");
  }
  size_t workspace_bytes() const override {
    return Constants::Bytes(panels_, kCount) + TotalsBytes();
  }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 || i == 1 || i == 6 || i == BatchNormBackwardSpec::kDy2 ? layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override { return i == 0 || i == 3 ? layout_ : nullptr; }
  /// Where dadd has taken dy's memory, dx may take x's.
  int inplace_input(size_t i) const override { return i == 3 ? 0 : i > 0 ? -1 : need_add_ ? 1 : 0; }

  void Run(const Execution& execution) const override {
    const T *dy = execution.in<T>(0), *x = execution.in<T>(1), *y = InputOrNull<T>(execution, 6);
    const T* dy2 = has_dy2_ ? execution.in<T>(BatchNormBackwardSpec::kDy2) : nullptr;
    T *dx = OutputOrNull<T>(execution, 0), *dadd = OutputOrNull<T>(execution, 3);
    const Constants constants(panels_, static_cast<char*>(execution.workspace) + TotalsBytes());
    for (int64_t panel = 0; panel < panels_.panels; ++panel)
      SetAffine<T>(constants, panel, execution.in<float>(3), execution.in<float>(4),
                   InputOrNull<float>(execution, 2), InputOrNull<float>(execution, 5));
    // dadd is dy where that counts, so the second pass has nothing to decide any more.
    const T* g = need_add_ ? dadd : dy;
    const ReluMask mask = need_add_ ? ReluMask::kNone : mask_;
    InTwoPasses(
        training_ || need_scale_ || need_add_,
        [&](int64_t panel, int64_t chunk) {
          Sum(execution, dy, dy2, x, y, panel, chunk, Row(constants, panel), dadd);
        },
        [&](int64_t panel) { Finish(execution, constants, panel); }, need_x_,
        [&](int64_t panel, int64_t chunk) {
          Gradient(mask, g, x, y, constants, panel, chunk, dx);
        });
  }

 private:
  enum : size_t { kConstant = kAffineCount, kSlope, kCount };

  void Sum(const Execution& execution, const T* dy, const T* dy2, const T* x, const T* y,
           int64_t panel, int64_t chunk, const AffineRow& affine, T* dadd) const {
    const int64_t width = panels_.row_width(panel);
    Buffer sum, products;
    double* total = Totals(execution, panel, chunk);
    std::fill_n(total, 2 * panels_.width, 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      std::fill_n(sum.begin(), width, 0.0f);
      std::fill_n(products.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        const T* sign = y ? y + offset : nullptr;
        if (need_add_) {
          AddGradientsOfSum(dy + offset, dy2 ? dy2 + offset : nullptr, x + offset, sign, rows,
                            width, affine.mean, sum.data(), products.data(), dadd + offset,
                            stream_);
        } else {
          AddGradients(mask_, dy + offset, x + offset, sign, rows, width, affine, sum.data(),
                       products.data());
        }
      });
      AddToTotals(width, sum.data(), products.data(), total);
    });
  }

  /// dscale and dbias, and what dx subtracts.
  void Finish(const Execution& execution, const Constants& constants, int64_t panel) const {
    const int64_t first = panels_.first_channel(panel);
    for (size_t i : {kConstant, kSlope}) std::fill_n(constants[i] + first, panels_.width, 0.0f);
    if (!training_ && !need_scale_) return;
    const int64_t width = panels_.row_width(panel), filled = panels_.filled(panel);
    Buffer var, dscale, dbias, constant, slope;
    std::copy_n(execution.in<float>(4) + first, filled, var.begin());
    std::fill(var.begin() + filled, var.begin() + width, 1.0f);  // of what fills up a block
    ToLoopOrder<T>(width, var.data());
    FindSlopes(AddUp(execution, panel), var.data(), constants[kFactor] + first, epsilon_,
               panels_.rows(), width, dscale.data(), dbias.data(), constant.data(), slope.data());
    if (training_) {
      std::copy_n(constant.begin(), width, constants[kConstant] + first);
      std::copy_n(slope.begin(), width, constants[kSlope] + first);
    }
    if (need_scale_) {
      Put<T>(panel, dscale, execution.out<float>(1));
      Put<T>(panel, dbias, execution.out<float>(2));
    }
  }

  void Gradient(ReluMask mask, const T* dy, const T* x, const T* y, const Constants& constants,
                int64_t panel, int64_t chunk, T* dx) const {
    const int64_t width = panels_.row_width(panel), first = panels_.first_channel(panel);
    const AffineRow affine = Row(constants, panel);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        GradientRows(mask, dy + offset, x + offset, y ? y + offset : nullptr, rows, width, affine,
                     constants[kConstant] + first, constants[kSlope] + first, dx + offset, stream_);
      });
    });
  }

  bool training_, need_x_, need_scale_, need_add_, has_dy2_;
  ReluMask mask_;
};

/// How x lies, where that is one of the layouts that we know.
template <class Spec>
std::optional<Tag> TagOf(const Spec& spec) {
  // A row-major (N, C, 1, 1) has its channels side by side.
  if (!spec.x_layout && spec.shape.Count(2, spec.shape.rank()) == 1) return Tag::nhwc;
  return LaneTagOf(spec.x_layout, spec.shape, spec.dtype);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (std::string reason = RefusesOwn(spec.dtype); !reason.empty()) return reason;
  if (spec.shape.Count() == 0) return "there is nothing to compute";
  if (!TagOf(spec))
    return spec.x_layout ? "the channels are not innermost"
                         : "the plain kernel is faster on row-major images";
  return "";
}

template <class Spec, template <class T> class SpecPlan>
PlanPtr Make(const Spec& spec) {
  if (spec.dtype == kBFloat16) return std::make_shared<SpecPlan<BFloat16>>(spec, *TagOf(spec));
  return std::make_shared<SpecPlan<float>>(spec, *TagOf(spec));
}

}  // namespace

void RegisterBatchNorm() {
  Register<BatchNormForwardSpec>("onednn", Refuses<BatchNormForwardSpec>,
                                 Make<BatchNormForwardSpec, ForwardPlan>);
  Register<BatchNormBackwardSpec>("onednn", Refuses<BatchNormBackwardSpec>,
                                  Make<BatchNormBackwardSpec, BackwardPlan>);
}

}  // namespace singa::onednn
