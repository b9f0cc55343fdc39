#include "backend/onednn/winograd_filter.h"

#include <cstring>
#include <memory>
#include <string>

#include "core/parallel.h"

namespace singa::onednn::winograd {
namespace {

/// Transformed filters that are read once for each call and yet stay in the second level cache.
constexpr size_t kCachedBytes = size_t{1} << 20;

/// 6 values to the 3 weights that they came from: of the points 0, ±a and infinity.
void WeightsOf(const float* u, int step, float* g) {
  g[0] = u[0] / kF0;
  g[1] = (u[step] - u[2 * step]) / (2 * kFA * kA);
  g[2] = u[5 * step];
}

template <int64_t kLanes>
class FilterLayout final : public OpaqueLayout {
 public:
  explicit FilterLayout(const Shape& filter)
      : OpaqueLayout(filter, kFloat32), panels_(filter[1], filter[0], false) {}

  const char* backend() const override { return "onednn"; }
  size_t bytes() const override { return panels_.bytes(); }
  size_t hash() const override { return bytes() * 31 + kLanes; }
  bool Equals(const OpaqueLayout& other) const override {
    return dynamic_cast<const FilterLayout*>(&other) && other.shape() == shape();
  }
  std::string ToString() const override { return "winograd" + std::to_string(kLanes) + "o"; }

  void Pack(const void* plain, void* opaque) const override {
    const float* weights = static_cast<const float*>(plain);
    float* values = static_cast<float*>(opaque);
    std::memset(values, 0, bytes());
    ParallelFor(panels_.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel)
        panels_.Transform(panel, weights, values + panel * panels_.size);
    });
  }

  void Unpack(const void* opaque, void* plain) const override {
    const float* values = static_cast<const float*>(opaque);
    float* weights = static_cast<float*>(plain);
    for (int64_t out = 0; out < panels_.columns; ++out) {
      const int64_t panel = out / panels_.kWidth, column = out % panels_.kWidth;
      const float* from = values + panel * panels_.size + column;
      for (int64_t in = 0; in < panels_.depth; ++in) {
        float tile[kPositions], rows[kIn * 3], g[9];
        for (int p = 0; p < kPositions; ++p)
          tile[p] = from[p * panels_.position_step + in * panels_.width(panel)];
        for (int i = 0; i < kIn; ++i) WeightsOf(tile + i * kIn, 1, rows + i * 3);
        for (int j = 0; j < 3; ++j) {
          float turned[3];
          WeightsOf(rows + j, 3, turned);
          for (int i = 0; i < 3; ++i) g[i * 3 + j] = turned[i];
        }
        std::copy_n(g, 9, weights + (out * panels_.depth + in) * 9);
      }
    }
  }

 private:
  FilterPanels<kLanes> panels_;
};

}  // namespace

bool FitsPrepared(const Shape& filter, int64_t lanes) {
  const size_t bytes = lanes == 16 ? FilterPanels<16>(filter[1], filter[0], false).bytes()
                                   : FilterPanels<8>(filter[1], filter[0], false).bytes();
  return bytes <= kCachedBytes;
}

LayoutPtr PreparedLayout(const Shape& filter, int64_t lanes) {
  if (lanes == 16) return std::make_shared<FilterLayout<16>>(filter);
  return std::make_shared<FilterLayout<8>>(filter);
}

}  // namespace singa::onednn::winograd
