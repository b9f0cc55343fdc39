#include "backend/cpu/winograd/filter.h"

#include <cstring>
#include <memory>
#include <string>

#include "core/device/parallel.h"

namespace singa::cpu::winograd {
namespace {

/// Limit for transformed filters: each call reads them once, and they should stay in the L2 cache.
constexpr size_t kCachedBytes = size_t{1} << 20;

/// Recovers weights from their values: those at 0 and infinity are the first and the last weight,
/// and those at ±a and (for five weights) ±b give the even and odd parts.
template <int kTaps>
void WeightsOf(const float* u, int step, float* g) {
  constexpr Constants<Axis<kTaps>> c;
  constexpr int kIn = Axis<kTaps>::kIn;
  constexpr float kA = kPoints<kIn>[0], kB = kPoints<kIn>[1], kA2 = kA * kA;
  const float odd_a = (u[step] - u[2 * step]) / (2 * c.factor[0] * kA);
  g[0] = u[0] / c.zero_factor;
  g[1] = odd_a;
  if constexpr (kTaps == 5) {
    const float even_a = (u[step] + u[2 * step]) / (2 * c.factor[0]);
    const float odd_b = (u[3 * step] - u[4 * step]) / (2 * c.factor[1] * kB);
    g[3] = (odd_b - odd_a) / (kB * kB - kA2);
    g[1] = odd_a - kA2 * g[3];
    g[2] = (even_a - g[0] - kA2 * kA2 * u[(kIn - 1) * step]) / kA2;
  }
  g[kTaps - 1] = u[(kIn - 1) * step];
}

template <int64_t kLanes, int kTaps>
class FilterLayout final : public OpaqueLayout {
  using Square = Taps<kTaps, kTaps>;

 public:
  explicit FilterLayout(const Shape& filter)
      : OpaqueLayout(filter, kFloat32),
        panels_(Loops<float, kLanes>::template For<Square>(), filter[1], filter[0], false) {}

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
        constexpr int kSide = Square::kInDown;
        float tile[Square::kPositions], rows[kSide * kTaps];
        for (int p = 0; p < Square::kPositions; ++p)
          tile[p] = from[p * panels_.position_step + in * panels_.width(panel)];
        for (int i = 0; i < kSide; ++i) WeightsOf<kTaps>(tile + i * kSide, 1, rows + i * kTaps);
        float* g = weights + (out * panels_.depth + in) * kTaps * kTaps;
        for (int j = 0; j < kTaps; ++j) {
          float column[kTaps];
          WeightsOf<kTaps>(rows + j, kTaps, column);
          for (int i = 0; i < kTaps; ++i) g[i * kTaps + j] = column[i];
        }
      }
    }
  }

 private:
  FilterPanels<float, kLanes> panels_;
};

}  // namespace

bool FitsPrepared(const Shape& filter, int64_t lanes) {
  return filter.rank() == 4 && filter[2] == filter[3] &&
         PreparedLayout(filter, lanes)->bytes() <= kCachedBytes;
}

LayoutPtr PreparedLayout(const Shape& filter, int64_t lanes) {
  const auto make = [&]<int64_t kLanes>() -> LayoutPtr {
    if (filter[2] == 3) return std::make_shared<FilterLayout<kLanes, 3>>(filter);
    return std::make_shared<FilterLayout<kLanes, 5>>(filter);
  };
  return lanes == 16 ? make.template operator()<16>() : make.template operator()<8>();
}

}  // namespace singa::cpu::winograd
