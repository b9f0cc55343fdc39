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
class ChannelSumsPlan final : public Plan {
 public:
  ChannelSumsPlan(const LayoutPtr& layout, const Shape& shape, LaneTag tag)
      : Plan("cpu"), panels_(shape, tag), layout_(layout) {}
  std::string Describe() const override { return "cpu sum"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(panels_.panels * panels_.chunks * panels_.width) * sizeof(double);
  }
  LayoutPtr input_layout(size_t) const override { return layout_; }

  void Run(const Execution& execution) const override {
    const Panels& g = panels_;
    const T* x = execution.in<T>(0);
    auto* totals = static_cast<double*>(execution.workspace);
    ParallelFor(g.panels * g.chunks, kParallelGrain / (g.chunk * g.width) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i)
                    SumChunk(x, i / g.chunks, i % g.chunks, totals + i * g.width);
                });
    T* sums = execution.out<T>(0);
    for (int64_t panel = 0; panel < g.panels; ++panel) {
      double* total = totals + panel * g.chunks * g.width;
      for (int64_t i = g.width; i < g.chunks * g.width; ++i) total[i % g.width] += total[i];
      StoreStrided(total, g.filled(panel), sums + g.first_channel(panel), 1);
    }
  }

 private:
  void SumChunk(const T* x, int64_t panel, int64_t chunk, double* total) const {
    const int64_t width = panels_.row_width(panel);
    Buffer sum;
    std::fill_n(total, panels_.width, 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      std::fill_n(sum.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        AddRows(x + offset, rows, width, sum.data());
      });
      for (int64_t c = 0; c < width; ++c) total[c] += static_cast<double>(sum[c]);
    });
  }

  Panels panels_;
  LayoutPtr layout_;
};

}  // namespace

PlanPtr MakeChannelSums(LaneTag tag, const Shape& images, DType dtype) {
  const LayoutPtr layout = LaneLayout(images, dtype, tag);
  if (dtype == kBFloat16) return std::make_shared<ChannelSumsPlan<BFloat16>>(layout, images, tag);
  return std::make_shared<ChannelSumsPlan<float>>(layout, images, tag);
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
  return MakeChannelSums(*TagOf(spec), ShapeOfDy(spec), spec.dtype);
}

/// Sums for each channel of an image.
std::optional<LaneTag> TagOf(const ReduceSpec& spec) {
  if (spec.reduce != ReduceOp::kSum || spec.axes != AxesBesideChannels(spec.shape))
    return std::nullopt;
  return LaneTagOf(spec.x_layout, spec.shape, spec.dtype);
}

std::string RefusesReduction(const ReduceSpec& spec) {
  if (!spec.x_layout) return "only images in blocks";
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  return TagOf(spec) ? "" : "only sums for each channel";
}

PlanOrReason MakeReduction(const ReduceSpec& spec) {
  return MakeChannelSums(*TagOf(spec), spec.shape, spec.dtype);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ReduceSpec>(DeviceKind::kCpu, "cpu",
                       {.refuses = RefusesReduction, .make = MakeReduction});
  Register<ConvSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
  Register<ConvTransposeSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu
