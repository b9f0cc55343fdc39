#pragma once

// Inner loops of max pooling on channels-last and blocked images.

#include <cstdint>

#include "core/layout/channel_lanes.h"
#include "model/operation/pooling/windows.h"

namespace singa::cpu {

/// The windows, and the memory layouts of input and output.
struct MaxWindows {
  PoolWindows windows;
  Lanes x, y;
};

/// A row of windows, or of an image.
struct Row {
  int64_t plane, row;
};

/// One row of windows of one block with `filled` valid channels. x points to row `top` of the
/// image's first plane; y and position point to the row of windows. Either may be null.
template <class T>
void MaxRows(const MaxWindows& g, const T* x, int64_t top, Row o, int64_t filled, T* y,
             int32_t* position);

/// One row of dx of one block: sums the gradients of the windows whose maximum is there. dy and
/// position point to the block.
template <class T>
void GradientRows(const MaxWindows& g, const T* dy, const int32_t* position, Row i, int64_t filled,
                  T* dx);

}  // namespace singa::cpu
