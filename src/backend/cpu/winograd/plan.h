#pragma once

// What the plans of Winograd's method share.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/winograd/filter.h"
#include "backend/cpu/winograd/taps.h"
#include "backend/cpu/winograd/tiles.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::winograd {

/// The layout of transformed tiles, "values": [position][tile][channel]. Rows are padded, because
/// with strides of a power of two they would map to the same cache sets.
struct Values {
  Values(int64_t positions, int64_t tiles, int64_t channels, int64_t apart)
      : tile_step(channels + apart),
        position_step(tiles * tile_step + apart),
        size(positions * position_step) {}
  int64_t tile_step, position_step, size;
};

/// The layout of the images on both sides: the present one, if it is supported.
inline LaneTag TagFor(const ConvSpec& spec, int64_t lanes) {
  const Recorder& r = spec.geometry;
  const LaneTag blocked = lanes == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c;
  const bool channels_last = std::min(r.in_channels, r.out_channels) >= lanes;
  auto readable = [&](std::optional<LaneTag> tag) {
    return tag && (*tag == blocked || (*tag == LaneTag::kNhwc && channels_last));
  };
  const auto x = LaneTagOf(spec.x_layout, r.input_shape(), spec.dtype);
  if (readable(x)) return *x;
  const auto y = LaneTagOf(spec.dy_layout, r.output_shape(), spec.dtype);
  if (readable(y)) return *y;
  return blocked;
}

class WinogradPlan : public Plan {
 public:
  WinogradPlan(const ConvSpec& spec, std::vector<LayoutPtr> inputs, std::vector<LayoutPtr> outputs,
               const std::string& products = "")
      : Plan("winograd"),
        spec_(spec),
        threads_(std::max(spec.threads, 1)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        products_(products.empty() ? "" : ", " + products) {}
  std::string Describe() const override {
    const auto by = [](int down, int across) {
      return std::to_string(down) + "x" + std::to_string(across);
    };
    const std::string method = WithTaps(spec_, [&]<class Taps>(Taps) {
      return "F(" + by(Taps::kOutDown, Taps::kOutAcross) + ", " + by(Taps::kDown, Taps::kAcross) +
             ")";
    });
    return "winograd " + method + (spec_.has_add ? " + add" : "") + products_;
  }
  LayoutPtr input_layout(size_t i) const override {
    return i < inputs_.size() ? inputs_[i] : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override {
    return i < outputs_.size() ? outputs_[i] : nullptr;
  }
  int inplace_input(size_t i) const override {
    return i == 0 && spec_.has_add ? static_cast<int>(spec_.add_input()) : -1;
  }
  bool spreads_error() const override { return true; }

 protected:
  /// What follows the sums of a forward pass.
  template <class T>
  After<T> AfterOf(const Execution& execution) const {
    return {spec_.geometry.bias ? execution.in<T>(2) : nullptr,
            spec_.has_add ? execution.in<T>(spec_.add_input()) : nullptr,
            static_cast<bool>(spec_.activation)};
  }

  const ConvSpec spec_;
  const int threads_;

 private:
  std::vector<LayoutPtr> inputs_, outputs_;
  std::string products_;  ///< how they are computed, for Describe
};

/// Layouts of x or dy, the filter, the bias, and the tensor that is added to y.
inline std::vector<LayoutPtr> ArgumentLayouts(const ConvSpec& spec, LaneTag tag, const Shape& from,
                                              const Shape& to, int64_t lanes) {
  std::vector<LayoutPtr> layouts(spec.add_input() + 1);
  layouts[0] = LaneLayout(from, spec.dtype, tag);
  if (IsPrepared(spec, lanes)) layouts[1] = PreparedLayout(spec.geometry.weight_shape(), lanes);
  if (spec.has_add) layouts[spec.add_input()] = LaneLayout(to, spec.dtype, tag);
  return layouts;
}

}  // namespace singa::cpu::winograd
