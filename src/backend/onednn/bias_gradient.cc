#include "backend/onednn/bias_gradient.h"

#include <algorithm>

#include "backend/onednn/batchnorm_panels.h"
#include "backend/onednn/channel_lanes.h"
#include "core/convert_chunk.h"
#include "core/parallel.h"

namespace singa::onednn {
namespace {

SINGA_MULTI_ISA void AddRows(const float* x, int64_t rows, int64_t width, float* sum) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < width; ++c) sum[c] += x[row * width + c];
}

/// Rows are summed up in float32 a few at a time, and these sums in double. Where they are cut
/// depends on the shape alone.
class BiasGradientPlan final : public Plan {
 public:
  BiasGradientPlan(const LayoutPtr& layout, const Shape& shape, DType dtype, LaneTag tag)
      : Plan("onednn"), panels_(shape, tag), layout_(layout), dtype_(dtype) {
    if (dtype != kFloat32) load_ = FindLoad<float>(dtype);
  }
  std::string Describe() const override { return "onednn layout, own sum"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(panels_.panels * panels_.chunks * panels_.width) * sizeof(double);
  }
  LayoutPtr input_layout(size_t) const override { return layout_; }

  void Run(const Execution& execution) const override {
    const Panels& g = panels_;
    const Source dy(execution.inputs[0], load_);
    auto* totals = static_cast<double*>(execution.workspace);
    ParallelFor(g.panels * g.chunks, kParallelGrain / (g.chunk * g.width) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i)
                    SumChunk(dy, i / g.chunks, i % g.chunks, totals + i * g.width);
                });
    const StoreChunkFn<double> store = FindStore<double>(dtype_);
    for (int64_t panel = 0; panel < g.panels; ++panel) {
      double* total = totals + panel * g.chunks * g.width;
      for (int64_t i = g.width; i < g.chunks * g.width; ++i) total[i % g.width] += total[i];
      store(total, g.filled(panel), execution.outputs[0].raw_data(), g.first_channel(panel), 1);
    }
  }

 private:
  void SumChunk(const Source& dy, int64_t panel, int64_t chunk, double* total) const {
    const int64_t width = panels_.row_width(panel);
    Buffer buffer, sum;
    std::fill_n(total, panels_.width, 0.0);
    panels_.ForRows(chunk, [&](int64_t begin, int64_t end) {
      std::fill_n(sum.begin(), width, 0.0f);
      panels_.ForTiles(panel, begin, end, [&](int64_t offset, int64_t rows) {
        AddRows(dy.Read(offset, rows * width, buffer), rows, width, sum.data());
      });
      for (int64_t c = 0; c < width; ++c) total[c] += static_cast<double>(sum[c]);
    });
  }

  Panels panels_;
  LayoutPtr layout_;
  DType dtype_;
  LoadChunkFn<float> load_ = nullptr;
};

}  // namespace

std::string RefusesBiasGradient(const LayoutPtr& dy_layout, const Shape& dy, DType dtype) {
  if (std::string reason = RefusesFloat(dtype); !reason.empty()) return reason;
  return LaneTagOf(dy_layout, dy, dtype) ? "" : "the plain kernel sums row-major images";
}

PlanPtr MakeBiasGradient(const LayoutPtr& dy_layout, const Shape& dy, DType dtype) {
  return std::make_shared<BiasGradientPlan>(dy_layout, dy, dtype, *LaneTagOf(dy_layout, dy, dtype));
}

}  // namespace singa::onednn
