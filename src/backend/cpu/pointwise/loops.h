#pragma once

// Inner loops of 1 x 1 convolutions: products of a tile of pixels and blocks of filters, whose sums
// stay in registers until they are results.

#include <cstdint>

#include "singa/operation/activation.h"

namespace singa::cpu::pointwise {

/// Computes a tile: y = f(x · W + bias + add), for some pixels and some blocks of results.
struct TileCall {
  const float* x;      ///< [block of channels][pixel][lane]
  int64_t channels;    ///< of x
  int64_t block_step;  ///< between blocks of channels
  const float* w;      ///< for each block of results [channel, padded][lane]
  int64_t w_step;      ///< between blocks of results
  int64_t ahead;       ///< how far w is fetched into the cache before it is read
  const float* bias;   ///< of all results of the tile, padded
  const float* add;    ///< like y; may be null, or y
  float* y;
  int64_t y_step, pixel_step;  ///< between blocks of results, and between pixels
  int64_t blocks;              ///< of results, at most `results` of the loop
  int64_t last;                ///< results in the last block
  bool pads = false;           ///< whether its other lanes get zeros; else they are not written
  Activation after;
};

/// The loop for tiles of a number of pixels.
struct Loop {
  int64_t results;  ///< blocks of results that are computed together
  void (*run)(const TileCall&);
};

/// Copies `pixels` pixels of channels-last rows, `step` apart, to [block of channels][pixel][lane].
/// Lanes without a channel get zeros.
using CopyPixels = void (*)(const float* from, int64_t step, int64_t pixels, int64_t channels,
                            float* to, int64_t block_step);

/// Loops for one instruction set.
struct Loops {
  int64_t lanes = 0;            ///< of a vector, and channels of a block; 0: there are no loops
  int64_t pixels = 0;           ///< of the largest tile
  const Loop* tiles = nullptr;  ///< by pixels - 1
  CopyPixels copy = nullptr;
};
Loops LoopsAvx512();
Loops LoopsAvx2();
Loops LoopsNeon();

}  // namespace singa::cpu::pointwise
