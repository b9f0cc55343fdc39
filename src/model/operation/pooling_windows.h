#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

/// Which tap of which window of a pooling reads which position, along one axis. Tap k of window o
/// reads position start(o) + k · dilation. Ranges are [first, last).
class WindowAxis {
 public:
  struct Range {
    int64_t first, last;
    int64_t size() const { return last - first; }
  };

  WindowAxis(int64_t size, int64_t windows, int64_t kernel, int64_t stride, int64_t pad_before,
             int64_t pad_after, int64_t dilation, bool count_padding)
      : size_(size), windows_(windows), stride_(stride), pad_(pad_before), dilation_(dilation) {
    for (int64_t o = 0; o < windows; ++o) {
      const auto taps_before = [&](int64_t end) {
        return std::clamp<int64_t>(CeilDivide(end - start(o), dilation), 0, kernel);
      };
      taps_.push_back({taps_before(0), taps_before(size)});
      // Windows never start before the padding, but with ceil_mode they may end behind it.
      divisor_.push_back(count_padding ? taps_before(size + pad_after) : taps_.back().size());
    }
    for (int64_t k = 0; k < kernel; ++k) {
      const auto windows_before = [&](int64_t end) {
        return std::clamp<int64_t>(CeilDivide(end + pad_ - k * dilation, stride), 0, windows);
      };
      inside_.push_back({windows_before(0), windows_before(size)});
    }
    for (int64_t i = 0; i < size; ++i) {
      const int64_t reach = dilation * (kernel - 1);
      const int64_t first = CeilDivide(i + pad_ - reach, stride);
      const int64_t last = std::min((i + pad_) / stride + 1, windows);
      over_.push_back({std::clamp<int64_t>(first, 0, last), last});
    }
  }

  int64_t size() const { return size_; }        ///< positions
  int64_t windows() const { return windows_; }  ///< windows
  int64_t kernel() const { return static_cast<int64_t>(inside_.size()); }
  int64_t stride() const { return stride_; }
  /// Position of tap 0 of window o, which may lie in the padding.
  int64_t start(int64_t o) const { return o * stride_ - pad_; }
  /// Position of tap k of window o.
  int64_t position(int64_t o, int64_t k) const { return start(o) + k * dilation_; }

  /// Taps of window o that lie inside the input.
  Range taps(int64_t o) const { return taps_[o]; }
  /// Elements that an average over window o counts.
  int64_t divisor(int64_t o) const { return divisor_[o]; }
  /// Windows whose tap k lies inside the input.
  Range inside(int64_t k) const { return inside_[k]; }
  /// Windows within whose span position i lies; with a dilation not all of them read it.
  Range over(int64_t i) const { return over_[i]; }

 private:
  static int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b > 0); }

  int64_t size_, windows_, stride_, pad_, dilation_;
  std::vector<Range> taps_;
  std::vector<int64_t> divisor_;
  std::vector<Range> inside_;
  std::vector<Range> over_;
};

/// Both axes.
struct PoolWindows {
  PoolWindows(const Recorder& r, PoolMode mode)
      : rows(r.height, r.conv_height, r.kernel_h, r.stride_h, r.pad_top, r.pad_bottom, r.dilation_h,
             mode == PoolMode::kAverageIncludePad),
        columns(r.width, r.conv_width, r.kernel_w, r.stride_w, r.pad_left, r.pad_right,
                r.dilation_w, mode == PoolMode::kAverageIncludePad) {}
  int64_t input() const { return rows.size() * columns.size(); }         ///< elements of an image
  int64_t output() const { return rows.windows() * columns.windows(); }  ///< of its result

  WindowAxis rows, columns;
};

}  // namespace singa
