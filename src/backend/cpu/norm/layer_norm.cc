// Layer and RMS norm of rows of values that lie side by side: the last axes of x, or the channels
// of channels-last images. A row stays in the first-level cache while its two or three passes run.
//
// The gradients of scale and bias are sums over all rows. Rows are cut into pieces by their number
// alone; each piece adds up in float32, and the pieces are added in double.
//
// dx may lie where dy does: each loop reads an element before it writes it, and `omp simd` says
// that no other elements overlap.

#include <algorithm>
#include <memory>
#include <string>

#include "backend/cpu/norm/norm_runs.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "model/operation/norm/spec.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

constexpr int64_t kMostPieces = 64;

/// y = (x − mean) · inv_std · scale + bias; scale and bias may be null.
template <class T>
[[gnu::always_inline]] inline void Normalize(const T* x, T* y, int64_t n, NormMoments m,
                                             const float* scale, const float* bias) {
  if (scale && bias) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      y[i] = Convert<T>((Convert<float>(x[i]) - m.mean) * m.inv_std * scale[i] + bias[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float v = (Convert<float>(x[i]) - m.mean) * m.inv_std * (scale ? scale[i] : 1);
      y[i] = Convert<T>(bias ? v + bias[i] : v);
    }
  }
}

/// dx = inv_std · (g − a − (x − mean) · b)
template <class T>
[[gnu::always_inline]] inline void Gradient(const T* dy, const T* x, T* dx, int64_t n,
                                            NormMoments m, const float* scale, float a, float b) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = scale ? Convert<float>(dy[i]) * scale[i] : Convert<float>(dy[i]);
    dx[i] = Convert<T>(m.inv_std * (g - a - (Convert<float>(x[i]) - m.mean) * b));
  }
}

/// dscale += dy · x̂, dbias += dy
template <class T>
[[gnu::always_inline]] inline void AddParameterGradients(const T* dy, const T* x, int64_t n,
                                                         NormMoments m, float* dscale,
                                                         float* dbias) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = Convert<float>(dy[i]);
    dscale[i] += g * (Convert<float>(x[i]) - m.mean) * m.inv_std;
    dbias[i] += g;
  }
}

/// Rows of `length` values, and their moments. Pointers of what is absent are null.
template <class T>
struct ForwardRows {
  const T* x;
  T* y;
  int64_t length;
  const float *scale, *bias;
  float *means, *inv_stds;
  double epsilon;
};

template <class T>
SINGA_MULTI_ISA void NormalizeRows(const ForwardRows<T>& rows, int64_t begin, int64_t end) {
  const int64_t n = rows.length;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = rows.x + row * n;
    const NormMoments m = MomentsOfRun(x, n, rows.means != nullptr, rows.epsilon);
    if (rows.means) rows.means[row] = m.mean;
    rows.inv_stds[row] = m.inv_std;
    Normalize(x, rows.y + row * n, n, m, rows.scale, rows.bias);
  }
}

/// As ForwardRows. `dx` is null if it is not needed.
template <class T>
struct BackwardRows {
  const T *dy, *x;
  T* dx;
  int64_t length;
  const float *scale, *means, *inv_stds;
};

/// Adds the rows' gradients of scale and bias to `dscale` and `dbias`, unless these are null.
template <class T>
SINGA_MULTI_ISA void RowGradients(const BackwardRows<T>& rows, int64_t begin, int64_t end,
                                  float* dscale, float* dbias) {
  const int64_t n = rows.length;
  for (int64_t row = begin; row < end; ++row) {
    const T *dy = rows.dy + row * n, *x = rows.x + row * n;
    const NormMoments m{rows.means ? rows.means[row] : 0, rows.inv_stds[row]};
    if (dscale) AddParameterGradients(dy, x, n, m, dscale, dbias);
    if (!rows.dx) continue;
    const GradientSums sums = SumGradients(dy, x, n, m.mean, rows.scale);
    const auto count = static_cast<double>(n);
    const double variance = static_cast<double>(m.inv_std) * m.inv_std;
    Gradient(dy, x, rows.dx + row * n, n, m, rows.scale,
             static_cast<float>(rows.means ? sums.gradient / count : 0),
             static_cast<float>(sums.product * variance / count));
  }
}

class RowsPlan : public Plan {
 public:
  RowsPlan(const NormGeometry& geometry, LayoutPtr layout)
      : Plan("cpu"),
        rows_(geometry.statistics()),
        length_(geometry.channels()),
        centered_(geometry.centered),
        layout_(std::move(layout)) {}
  std::string Describe() const override { return "cpu layer norm"; }

 protected:
  int64_t grain() const { return kParallelGrain / (length_ * 4 + 1) + 1; }

  int64_t rows_, length_;
  bool centered_;
  LayoutPtr layout_;
};

template <class T>
class ForwardPlan final : public RowsPlan {
 public:
  ForwardPlan(const NormForwardSpec& spec, LayoutPtr layout)
      : RowsPlan(spec, std::move(layout)), epsilon_(spec.epsilon) {}
  LayoutPtr input_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }

  void Run(const Execution& execution) const override {
    const ForwardRows<T> rows{.x = execution.in<T>(0),
                              .y = execution.out<T>(0),
                              .length = length_,
                              .scale = execution.in_or_null<float>(1),
                              .bias = execution.in_or_null<float>(2),
                              .means = centered_ ? execution.out<float>(1) : nullptr,
                              .inv_stds = execution.out<float>(2),
                              .epsilon = epsilon_};
    ParallelFor(rows_, grain(),
                [&](int64_t begin, int64_t end) { NormalizeRows(rows, begin, end); });
  }

 private:
  double epsilon_;
};

template <class T>
class BackwardPlan final : public RowsPlan {
 public:
  BackwardPlan(const NormBackwardSpec& spec, LayoutPtr layout)
      : RowsPlan(spec, std::move(layout)),
        need_x_(spec.need_x),
        need_parameters_(spec.need_scale || spec.need_bias),
        pieces_(std::clamp<int64_t>(rows_ * length_ / kParallelGrain, 1, kMostPieces)) {}
  LayoutPtr input_layout(size_t i) const override { return i <= 1 ? layout_ : nullptr; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  /// dx takes over the memory of dy: each row is read before it is written.
  int inplace_input(size_t i) const override { return i == 0 ? 0 : -1; }
  size_t workspace_bytes() const override {
    return need_parameters_ ? static_cast<size_t>(pieces_ * 2 * length_) * sizeof(float) : 0;
  }

  void Run(const Execution& execution) const override {
    const BackwardRows<T> rows{.dy = execution.in<T>(0),
                               .x = execution.in<T>(1),
                               .dx = need_x_ ? execution.out<T>(0) : nullptr,
                               .length = length_,
                               .scale = execution.in_or_null<float>(2),
                               .means = centered_ ? execution.in<float>(3) : nullptr,
                               .inv_stds = execution.in<float>(4)};
    auto* sums = static_cast<float*>(execution.workspace);
    ParallelFor(pieces_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        float* dscale = need_parameters_ ? sums + piece * 2 * length_ : nullptr;
        if (dscale) std::fill_n(dscale, 2 * length_, 0.0f);
        RowGradients(rows, piece * rows_ / pieces_, (piece + 1) * rows_ / pieces_, dscale,
                     dscale ? dscale + length_ : nullptr);
      }
    });
    if (need_parameters_)
      for (size_t i : {1, 2})
        if (!execution.outputs[i].empty())
          AddPieces(sums + static_cast<int64_t>(i - 1) * length_, execution.out<float>(i));
  }

 private:
  void AddPieces(const float* sums, float* out) const {
    for (int64_t i = 0; i < length_; ++i) {
      double total = 0;
      for (int64_t piece = 0; piece < pieces_; ++piece) total += sums[piece * 2 * length_ + i];
      out[i] = static_cast<float>(total);
    }
  }

  bool need_x_, need_parameters_;
  int64_t pieces_;
};

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.groups != 1 || spec.values() != spec.channels()) return "a statistic is not of one row";
  if (spec.positions() > 1 && spec.shape.rank() != 4) return "the channels do not lie side by side";
  return "";
}

template <template <class> class P, class Spec>
PlanOrReason Make(const Spec& spec) {
  LayoutPtr layout;
  if (spec.positions() > 1) layout = LaneLayout(spec.shape, spec.dtype, LaneTag::kNhwc);
  if (spec.dtype == kBFloat16) return std::make_shared<P<BFloat16>>(spec, std::move(layout));
  return std::make_shared<P<float>>(spec, std::move(layout));
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<NormForwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses<NormForwardSpec>, .make = Make<ForwardPlan, NormForwardSpec>});
  Register<NormBackwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses<NormBackwardSpec>, .make = Make<BackwardPlan, NormBackwardSpec>});
}

}  // namespace singa::cpu
