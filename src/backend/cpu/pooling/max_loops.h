#pragma once

// Inner loops of max pooling on channels-last and blocked images. A vector holds the same pixel of
// several channels.

#include <cstdint>

#include "backend/cpu/ahead.h"
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

/// Finds the maxima of a row of windows of one block with `filled` valid channels.
template <class T>
struct MaxCall {
  const MaxWindows& g;
  const T* x;  ///< row `top` of the image's first plane
  int64_t top;
  Row o;
  int64_t filled;
  T* y;                                            ///< the row of windows; may be null
  int32_t* position;                               ///< likewise
  bool stream_y = false, stream_position = false;  ///< past the caches; aligned to vectors
  Next next = {};                                  ///< is fetched meanwhile
};

/// Computes a row of dx of one block: sums the gradients of the windows whose maximum is there.
template <class T>
struct MaxGradientCall {
  const MaxWindows& g;
  const T* dy;              ///< the block
  const int32_t* position;  ///< the block
  Row i;
  int64_t filled;
  T* dx;  ///< the row
  bool stream;
  Next next_dy, next_position;
};

/// The loops for one instruction set. Their results are the same for all.
template <class T>
struct MaxLoops {
  void (*maximum)(const MaxCall<T>&);
  void (*gradient)(const MaxGradientCall<T>&);
  void (*fence)();  ///< after streaming, before another thread reads
};

/// Those of the highest instruction set that is allowed. T is float or BFloat16.
template <class T>
MaxLoops<T> MaxLoopsOfCpu();
template <class T>
MaxLoops<T> MaxLoopsAvx2();
template <class T>
MaxLoops<T> MaxLoopsAvx512();

}  // namespace singa::cpu
