#include "backend/cpu/norm/channel_sums.h"

#include <algorithm>

#include "backend/cpu/norm/batchnorm_panels.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/spec.h"
#include "model/operation/reduce/spec.h"

namespace singa::cpu {
namespace {

template <class T>
SINGA_MULTI_ISA void AddRows(const T* x, int64_t rows, int64_t width, float* sum) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < width; ++c) sum[c] += Convert<float>(x[row * width + c]);
}

/// Sums a few rows at a time in float32, and these sums in double. The division depends on the
/// shape alone.
template <class T>
class BiasGradientPlan final : public Plan {
 public:
  BiasGradientPlan(const LayoutPtr& layout, const Shape& shape, LaneTag tag)
      : Plan("cpu"), panels_(shape, tag), layout_(layout) {}
  std::string Describe() const override { return "cpu sum"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(panels_.panels * panels_.chunks * panels_.width) * sizeof(double);
  }
  LayoutPtr input_layout(size_t) const override { return layout_; }

  void Run(const Execution& execution) const override {
    const Panels& g = panels_;
    const T* dy = execution.in<T>(0);
    auto* totals = static_cast<double*>(execution.workspace);
    ParallelFor(g.panels * g.chunks, kParallelGrain / (g.chunk * g.width) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i)
                    SumChunk(dy, i / g.chunks, i % g.chunks, totals + i * g.width);
                });
    T* db = execution.out<T>(0);
    for (int64_t panel = 0; panel < g.panels; ++panel) {
      double* total = totals + panel * g.chunks * g.width;
      for (int64_t i = g.width; i < g.chunks * g.width; ++i) total[i % g.width] += total[i];
      StoreStrided(total, g.filled(panel), db + g.first_channel(panel), 1);
    }
  }

 private:
  void SumChunk(const T* dy, int64_t panel, int64_t chunk, double* total) const {
    const int64_t width = panels_.row_width(panel);
    Buffer sum;
    std::fill_n(total, panels_.width, 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      std::fill_n(sum.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        AddRows(dy + offset, rows, width, sum.data());
      });
      for (int64_t c = 0; c < width; ++c) total[c] += static_cast<double>(sum[c]);
    });
  }

  Panels panels_;
  LayoutPtr layout_;
};

}  // namespace

PlanPtr MakeBiasGradient(LaneTag tag, const Shape& dy, DType dtype) {
  const LayoutPtr layout = LaneLayout(dy, dtype, tag);
  if (dtype == kBFloat16) return std::make_shared<BiasGradientPlan<BFloat16>>(layout, dy, tag);
  return std::make_shared<BiasGradientPlan<float>>(layout, dy, tag);
}

namespace {

Shape ShapeOfDy(const ConvSpec& spec) { return spec.geometry.output_shape(); }
Shape ShapeOfDy(const ConvTransposeSpec& spec) { return spec.geometry.input_shape(); }

template <class Spec>
std::optional<LaneTag> TagOf(const Spec& spec) {
  return LaneTagOf(spec.dy_layout, ShapeOfDy(spec), spec.dtype);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (spec.pass != ConvPass::kBackwardB) return "only the gradient of the bias";
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  return TagOf(spec) ? "" : "the plain kernel sums row-major images";
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  return MakeBiasGradient(*TagOf(spec), ShapeOfDy(spec), spec.dtype);
}

/// Sums for each channel of an image.
std::optional<LaneTag> TagOf(const ReduceSpec& spec) {
  const uint32_t beside_channels = ((uint32_t{1} << spec.shape.rank()) - 1) & ~2u;
  if (spec.reduce != ReduceOp::kSum || spec.axes != beside_channels) return std::nullopt;
  return LaneTagOf(spec.x_layout, spec.shape, spec.dtype);
}

std::string RefusesReduction(const ReduceSpec& spec) {
  if (!spec.x_layout) return "only images in blocks";
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  return TagOf(spec) ? "" : "only sums for each channel";
}

PlanOrReason MakeReduction(const ReduceSpec& spec) {
  return MakeBiasGradient(*TagOf(spec), spec.shape, spec.dtype);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ReduceSpec>(DeviceKind::kCpu, "cpu",
                       {.refuses = RefusesReduction, .make = MakeReduction});
  Register<ConvSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
  Register<ConvTransposeSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu
