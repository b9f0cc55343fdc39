#pragma once

// How depthwise convolutions walk over images: rows and columns that a result reads, panels of
// channels, and the window of rows that are held as floats.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/depthwise/loops.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/round_up.h"
#include "singa/operation/recorder.h"

namespace singa::cpu::depthwise {

/// The most rows of taps.
inline constexpr int64_t kMostRows = 32;

/// The rows of the source, x or dy, that each row of results reads.
struct Down {
  int64_t taps, stride, dilation, pad;
  int64_t rows;   ///< of the source
  bool gradient;  ///< of the input: the source is dy

  Down(const Recorder& r, bool gradient)
      : taps(r.kernel_h()),
        stride(r.stride_h()),
        dilation(r.dilation_h()),
        pad(r.pad_top()),
        rows(gradient ? r.conv_height() : r.height()),
        gradient(gradient) {}

  struct Range {
    int64_t first, last;
  };
  /// The rows that lie between the outermost taps.
  Range Of(int64_t result) const {
    const int64_t reach = (taps - 1) * dilation;
    const int64_t at = gradient ? result + pad - reach : result * stride - pad;
    if (!gradient) return {std::max<int64_t>(at, 0), std::min(at + reach, rows - 1)};
    return {at > 0 ? CeilDivide(at, stride) : 0, std::min((result + pad) / stride, rows - 1)};
  }
  /// The most rows that this many consecutive results read, or one of a gradient of the input.
  int64_t Held(int64_t results) const {
    const int64_t reach = (taps - 1) * dilation;
    return std::min((gradient ? reach / stride : reach + (results - 1) * stride) + 1, rows);
  }
  /// The row under a tap; -1: none.
  int64_t Row(int64_t result, int64_t tap) const {
    int64_t row = gradient ? result + pad - tap * dilation : result * stride + tap * dilation - pad;
    if (gradient) {
      if (row % stride != 0) return -1;
      row /= stride;
    }
    return row >= 0 && row < rows ? row : -1;
  }
};

/// The columns of a buffered row.
struct Across {
  int64_t columns;       ///< of the buffer
  int64_t first, count;  ///< of the source, that are copied
  int64_t place;         ///< in the buffer, of the first one that is copied
  int64_t skipped = 0;   ///< see RowCall
  bool turned = false;   ///< taps in reverse order make a forward row of the input's gradient
  Tiles tiles = kTiles;

  /// Where there are wide tiles, those that compute fewer columns are taken.
  Across(const Recorder& r, bool gradient, bool has_wide_tiles) {
    const int64_t kernel = r.kernel_w(), stride = r.stride_w();
    int64_t origin = -r.pad_left(),
            width = r.width();  // the source's column at the buffer's first one
    if (gradient) {
      width = r.conv_width();
      turned = stride == 1;
      skipped = r.pad_left() % stride;
      origin = turned ? r.pad_left() - kernel + 1 : r.pad_left() / stride - (kernel - 1) / stride;
    }
    const int64_t wanted = gradient ? r.width() + skipped : r.conv_width();
    if (has_wide_tiles && kWideTiles.Columns(wanted) <= kTiles.Columns(wanted)) tiles = kWideTiles;
    const int64_t results = tiles.Columns(wanted);
    columns = gradient ? (kernel - 1) / stride + (results - 1) / stride + 1
                       : (results - 1) * stride + kernel;
    first = std::max<int64_t>(origin, 0);
    count = std::max<int64_t>(std::min(width, origin + columns) - first, 0);
    place = first - origin;
    columns |= 1;  // rows that are a power of two apart would share sets of the cache
  }
};

/// The channels of an image, or of a block of its channels, in panels.
struct Panels {
  int64_t lanes;    ///< of a vector
  int64_t vectors;  ///< of an image or block
  int64_t last;     ///< channels of the last vector
  int64_t count;    ///< panels

  Panels(const Lanes& image, int64_t lanes, int64_t most_vectors)
      : lanes(lanes), vectors(CeilDivide(image.lanes, lanes)) {
    last = image.lanes - (vectors - 1) * lanes;
    count = CeilDivide(vectors, most_vectors);
  }
  int64_t first(int64_t panel) const { return vectors * panel / count; }
  Panel Get(int64_t panel) const {
    const int64_t end = first(panel + 1);
    return {end - first(panel), end == vectors ? last : lanes};
  }
  int64_t most() const { return CeilDivide(vectors, count); }
};

/// The rows of a panel that a row of results reads, as floats.
template <class T>
class Window {
 public:
  /// `buffer` has Size() floats. Where `front` is not null, the rows are those behind it.
  Window(const Lanes& image, const Across& across, const Panels& panels, int64_t held,
         const Loops<T>& loops, const NormCall* front, float* buffer)
      : image_(image),
        across_(across),
        held_(held),
        lanes_(panels.lanes),
        vector_step_(across.columns * panels.lanes),
        row_step_(vector_step_ * panels.most()),
        loops_(loops),
        front_(front),
        buffer_(buffer) {
    std::fill_n(buffer, Size(across, panels, held), 0.0f);
  }
  static int64_t Size(const Across& across, const Panels& panels, int64_t held) {
    return held * panels.most() * panels.lanes * across.columns;
  }

  /// Begins another image; `from` points to the panel's first channel, which is that of this
  /// vector.
  void Enter(const T* from, const Panel& panel, int64_t vector) {
    from_ = from;
    panel_ = panel;
    vector_ = vector;
    next_ = 0;
  }
  /// Copies the rows of the range that are not there. Ranges come in ascending order.
  void Advance(const Down::Range& rows) {
    for (next_ = std::max(next_, rows.first); next_ <= rows.last; ++next_) {
      float* to = buffer_ + next_ % held_ * row_step_ + across_.place * lanes_;
      const CopyCall<T> call{panel_,
                             from_ + next_ * image_.row_step + across_.first * image_.column_step,
                             across_.count,
                             image_.column_step,
                             to,
                             vector_step_};
      if (front_)
        CopyNormed(call);
      else
        loops_.copy(call);
    }
  }
  /// What Advance will copy for this range, if it lies side by side.
  Next Ahead(const Down::Range& rows) const {
    const int64_t first = std::max(next_, rows.first);
    if (rows.last < first || panel_.vectors * lanes_ < image_.column_step) return {nullptr, 0};
    return {reinterpret_cast<const char*>(from_ + first * image_.row_step),
            (rows.last + 1 - first) * image_.row_step * static_cast<int64_t>(sizeof(T))};
  }
  const float* Row(int64_t row) const { return buffer_ + row % held_ * row_step_; }
  int64_t vector_step() const { return vector_step_; }

 private:
  /// Copies what is made of a row in front of the convolution.
  void CopyNormed(const CopyCall<T>& call) const {
    if constexpr (std::is_same_v<T, float>) {
      if (!front_->mean) return loops_.copy_normed(call, *front_);
      const int64_t first = vector_ * lanes_;
      const NormCall norm = {front_->mean + first, front_->factor + first, front_->bias + first,
                             front_->activation};
      loops_.copy_normed(call, norm);
    }
  }

  const Lanes& image_;
  const Across& across_;
  int64_t held_, lanes_, vector_step_, row_step_;
  const Loops<T>& loops_;
  const NormCall* front_;  // with the constants of all vectors
  float* buffer_;
  const T* from_ = nullptr;
  Panel panel_ = {};
  int64_t vector_ = 0, next_ = 0;
};

}  // namespace singa::cpu::depthwise
