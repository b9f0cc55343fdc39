#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

/// The windows of a pooling along one axis. Tap k of window o reads position start(o) + k ·
/// dilation. Ranges are [first, last). Windows of an adaptive pooling have different sizes.
class WindowAxis {
 public:
  struct Range {
    int64_t first, last;
    int64_t size() const { return last - first; }
  };

  WindowAxis(const Recorder::Axis& axis, bool adaptive, bool count_padding)
      : size_(axis.size),
        kernel_(axis.kernel),
        stride_(adaptive ? 0 : axis.stride),
        dilation_(axis.dilation) {
    adaptive ? SetAdaptive(axis) : SetRegular(axis, count_padding);
  }

  int64_t size() const { return size_; }  ///< positions
  int64_t windows() const { return static_cast<int64_t>(start_.size()); }
  int64_t kernel() const { return kernel_; }  ///< taps of the largest window
  int64_t dilation() const { return dilation_; }
  /// Whether neighbouring windows are stride() apart.
  bool regular() const { return stride_ > 0; }
  int64_t stride() const { return stride_; }
  /// Position of tap 0 of window o, which may lie in the padding.
  int64_t start(int64_t o) const { return start_[o]; }
  /// Position of tap k of window o.
  int64_t position(int64_t o, int64_t k) const { return start(o) + k * dilation_; }

  /// Taps of window o that lie inside the input.
  Range taps(int64_t o) const { return taps_[o]; }
  /// The number of elements that an average over window o divides by.
  int64_t divisor(int64_t o) const { return divisor_[o]; }
  /// Windows whose tap k lies inside the input. Only where regular().
  Range inside(int64_t k) const { return inside_[k]; }
  /// Windows whose span contains position i. With a dilation not all of them read it.
  Range over(int64_t i) const { return over_[i]; }

 private:
  static int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b > 0); }

  void SetRegular(const Recorder::Axis& axis, bool count_padding) {
    for (int64_t o = 0; o < axis.windows; ++o) {
      start_.push_back(o * axis.stride - axis.before);
      const auto taps_before = [&](int64_t end) {
        return std::clamp<int64_t>(CeilDivide(end - start_.back(), axis.dilation), 0, axis.kernel);
      };
      taps_.push_back({taps_before(0), taps_before(size_)});
      // No window starts before the padding. With ceil_mode a window may end behind it.
      divisor_.push_back(count_padding ? taps_before(size_ + axis.after) : taps_.back().size());
    }
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const auto windows_before = [&](int64_t end) {
        return std::clamp<int64_t>(CeilDivide(end + axis.before - k * axis.dilation, axis.stride),
                                   0, axis.windows);
      };
      inside_.push_back({windows_before(0), windows_before(size_)});
    }
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t reach = axis.dilation * (axis.kernel - 1);
      const int64_t first = CeilDivide(i + axis.before - reach, axis.stride);
      const int64_t last = std::min((i + axis.before) / axis.stride + 1, axis.windows);
      over_.push_back({std::clamp<int64_t>(first, 0, last), last});
    }
  }

  /// See AdaptivePoolRecorder.
  void SetAdaptive(const Recorder::Axis& axis) {
    for (int64_t o = 0; o < axis.windows; ++o) {
      start_.push_back(o * size_ / axis.windows);
      taps_.push_back({0, CeilDivide((o + 1) * size_, axis.windows) - start_.back()});
      divisor_.push_back(taps_.back().size());
    }
    for (int64_t i = 0; i < size_; ++i)
      over_.push_back({i * axis.windows / size_, CeilDivide((i + 1) * axis.windows, size_)});
  }

  int64_t size_, kernel_, stride_, dilation_;
  std::vector<int64_t> start_;
  std::vector<Range> taps_;
  std::vector<int64_t> divisor_;
  std::vector<Range> inside_;
  std::vector<Range> over_;
};

/// All axes. Images of fewer dimensions have one plane, and one row.
struct PoolWindows {
  PoolWindows(const Recorder& r, PoolMode mode)
      : PoolWindows(r.axes, r.adaptive, mode == PoolMode::kAverageIncludePad) {}
  /// Elements of an image, and of its result.
  int64_t input() const { return planes.size() * rows.size() * columns.size(); }
  int64_t output() const { return planes.windows() * rows.windows() * columns.windows(); }
  /// Taps of the largest window.
  int64_t taps() const { return planes.kernel() * rows.kernel() * columns.kernel(); }

  WindowAxis planes, rows, columns;

 private:
  PoolWindows(const std::array<Recorder::Axis, Recorder::kMostAxes>& axes, bool adaptive,
              bool count_padding)
      : planes(axes[0], adaptive, count_padding),
        rows(axes[1], adaptive, count_padding),
        columns(axes[2], adaptive, count_padding) {}
};

}  // namespace singa
