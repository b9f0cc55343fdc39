#include "backend/cpu/pooling/max_row_major.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/pooling/max_loops.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"

namespace singa::cpu {
namespace {

constexpr int64_t kBandBytes = 32 << 10;  // of x in a band, to fit in the L1 cache

using Four __attribute__((vector_size(16))) = int32_t;

inline __attribute__((always_inline)) void Transpose(Four (&rows)[4]) {
  const Four a = __builtin_shuffle(rows[0], rows[1], Four{0, 4, 1, 5});
  const Four b = __builtin_shuffle(rows[0], rows[1], Four{2, 6, 3, 7});
  const Four c = __builtin_shuffle(rows[2], rows[3], Four{0, 4, 1, 5});
  const Four d = __builtin_shuffle(rows[2], rows[3], Four{2, 6, 3, 7});
  rows[0] = __builtin_shuffle(a, c, Four{0, 1, 4, 5});
  rows[1] = __builtin_shuffle(a, c, Four{2, 3, 6, 7});
  rows[2] = __builtin_shuffle(b, d, Four{0, 1, 4, 5});
  rows[3] = __builtin_shuffle(b, d, Four{2, 3, 6, 7});
}

/// to[i · to_step + j] = from[j · from_step + i] for i < n and j < m; elements have 4 bytes.
void Transpose(const void* from_elements, int64_t from_step, int64_t n, int64_t m,
               void* to_elements, int64_t to_step) {
  const auto* from = static_cast<const int32_t*>(from_elements);
  auto* to = static_cast<int32_t*>(to_elements);
  const int64_t whole_n = n / 4 * 4, whole_m = m / 4 * 4;
  for (int64_t i = 0; i < whole_n; i += 4) {
    for (int64_t j = 0; j < whole_m; j += 4) {
      Four rows[4];
      for (int64_t k = 0; k < 4; ++k)
        std::memcpy(&rows[k], from + (j + k) * from_step + i, sizeof(Four));
      Transpose(rows);
      for (int64_t k = 0; k < 4; ++k)
        std::memcpy(to + (i + k) * to_step + j, &rows[k], sizeof(Four));
    }
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i < whole_n ? whole_m : 0; j < m; ++j)
      to[i * to_step + j] = from[j * from_step + i];
}

/// Transposes as many planes (channels of images) as there are lanes into channels-last order, one
/// band of rows at a time, and transposes the results back.
class RowMajorPlan final : public Plan {
 public:
  explicit RowMajorPlan(const PoolingForwardSpec& spec)
      : Plan("cpu"),
        g_(WindowsOf(spec)),
        planes_(spec.geometry.batchsize * spec.geometry.in_channels),
        save_(spec.save) {
    const WindowAxis& rows = g_.windows.rows;
    const int64_t fits = kBandBytes / (g_.x.row_step * static_cast<int64_t>(sizeof(float)));
    for (band_ = 1; band_ < rows.windows() && RowsOf(0, band_ + 1).size() <= fits;) ++band_;
    for (int64_t first = 0; first < rows.windows(); first += band_)
      most_rows_ = std::max(most_rows_, RowsOf(first, LastOf(first)).size());
  }
  std::string Describe() const override { return "cpu row-major maximum"; }

  void Run(const Execution& execution) const override {
    const float* x = execution.in<float>(0);
    float* y = execution.out<float>(0);
    int32_t* position = save_ ? execution.out<int32_t>(1) : nullptr;
    const int64_t lanes = g_.x.lanes, groups = (planes_ + lanes - 1) / lanes;
    const int64_t input = g_.windows.input(), output = g_.windows.output();
    const int64_t taps = g_.windows.taps();
    ParallelFor(groups, kParallelGrain / (lanes * (input + output * taps)) + 1,
                [&](int64_t begin, int64_t end) {
                  Buffers buffers(*this);
                  for (int64_t group = begin; group < end; ++group) {
                    const int64_t plane = group * lanes, n = std::min(lanes, planes_ - plane);
                    MaxPlanes(x + plane * input, n, buffers, y + plane * output,
                              position ? position + plane * output : nullptr);
                  }
                });
  }

 private:
  using Range = WindowAxis::Range;

  /// One band of each array, in channels-last order. Unused lanes are zero.
  struct Buffers {
    explicit Buffers(const RowMajorPlan& plan)
        : x(plan.most_rows_ * plan.g_.x.row_step),
          y(plan.band_ * plan.g_.y.row_step),
          position(plan.save_ ? y.size() : 0) {}
    std::vector<float> x, y;
    std::vector<int32_t> position;
  };

  static MaxWindows WindowsOf(const PoolingForwardSpec& spec) {
    const Recorder& r = spec.geometry;
    const int64_t lanes = VectorLanes();
    return {PoolWindows(r, PoolMode::kMax),
            Lanes({1, lanes, r.height(), r.width()}, LaneTag::kNhwc),
            Lanes({1, lanes, r.conv_height(), r.conv_width()}, LaneTag::kNhwc)};
  }

  int64_t LastOf(int64_t first) const { return std::min(first + band_, g_.windows.rows.windows()); }
  /// The range of rows of x that these windows read.
  Range RowsOf(int64_t first, int64_t last) const {
    const WindowAxis& rows = g_.windows.rows;
    Range range{rows.size(), 0};
    for (int64_t oh = first; oh < last; ++oh) {
      if (rows.taps(oh).size() == 0) continue;
      range.first = std::min(range.first, rows.position(oh, rows.taps(oh).first));
      range.last = std::max(range.last, rows.position(oh, rows.taps(oh).last - 1) + 1);
    }
    return range.last > 0 ? range : Range{0, 0};
  }

  void MaxPlanes(const float* x, int64_t n, Buffers& buffers, float* y, int32_t* position) const {
    const int64_t width = g_.x.width, out_width = g_.y.width, lanes = g_.x.lanes;
    for (int64_t first = 0; first < g_.y.height; first += band_) {
      const int64_t last = LastOf(first), out = (last - first) * out_width;
      const Range rows = RowsOf(first, last);
      Transpose(x + rows.first * width, g_.windows.input(), rows.size() * width, n,
                buffers.x.data(), lanes);
      for (int64_t oh = first; oh < last; ++oh) {
        const int64_t at = (oh - first) * g_.y.row_step;
        loops_.maximum({.g = g_,
                        .x = buffers.x.data(),
                        .top = rows.first,
                        .o = {0, oh},
                        .filled = lanes,
                        .y = buffers.y.data() + at,
                        .position = position ? buffers.position.data() + at : nullptr});
      }
      Transpose(buffers.y.data(), lanes, n, out, y + first * out_width, g_.windows.output());
      if (position)
        Transpose(buffers.position.data(), lanes, n, out, position + first * out_width,
                  g_.windows.output());
    }
  }

  MaxWindows g_;
  MaxLoops<float> loops_ = MaxLoopsOfCpu<float>();
  int64_t planes_;
  bool save_;
  int64_t band_;           // rows of windows
  int64_t most_rows_ = 0;  // of x in a band
};

}  // namespace

std::string RefusesRowMajorMax(const PoolingForwardSpec& spec) {
  if (spec.dtype != kFloat32) return "other types than float32 stay with the plain kernel";
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  if (spec.geometry.spatial == 3) return "volumes stay with the plain kernel";
  return VectorLanes() < 8 ? "this CPU's vectors are too short for it to pay" : "";
}

PlanPtr MakeRowMajorMax(const PoolingForwardSpec& spec) {
  return std::make_shared<RowMajorPlan>(spec);
}

}  // namespace singa::cpu
