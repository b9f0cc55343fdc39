#pragma once

// The inner loops of maximum pooling on images whose channels, or blocks of them, lie side by side.

#include <cstdint>

#include "backend/onednn/channel_lanes.h"
#include "model/operation/pooling_windows.h"

namespace singa::onednn {

/// The windows, and how what goes in and what comes out lies in memory.
struct MaxWindows {
  PoolWindows windows;
  Lanes x, y;
};

/// One row of windows, `oh`, of one block, of which `filled` channels exist. x points to row `top`
/// of the image, y and position, which may be null, to the row of windows.
template <class T>
void MaxRows(const MaxWindows& g, const T* x, int64_t top, int64_t oh, int64_t filled, T* y,
             int32_t* position);

/// One row of dx, `h`, of one block: adds up the windows whose maximum is there. dy and position
/// point to the block.
template <class T>
void GradientRows(const MaxWindows& g, const T* dy, const int32_t* position, int64_t h,
                  int64_t filled, T* dx);

}  // namespace singa::onednn
