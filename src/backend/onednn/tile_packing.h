#pragma once

// Between images or filters in oneDNN's layouts and the tiles of tile_product.h. What is summed up
// in a product of tiles is 32 images, at one pixel of each: images lie far apart, so tiles take
// them together.

#include <cstdint>

#include "backend/onednn/tile_product.h"

namespace singa::onednn::tiles {

/// Pixels of up to 32 images: `columns` of them, `column_step` elements apart. 16 channels lie side
/// by side, the next 16 `group_step` behind them; the last group is filled up with zeros, or has
/// fewer (channels % 16) where `channels_last`.
struct Pixels {
  const BFloat16* first;
  int64_t images, image_step;
  int64_t columns, column_step;
  int64_t channels, group_step;
  bool channels_last;
};

/// Left tiles, [channel][image], or right ones, [pair of images][channel][2]: of channels 16 · g
/// and on at to + g · to_step, pixel by pixel. Images and channels that are not there are zero.
void PackLeft(const Pixels& from, BFloat16* to, int64_t to_step);
void PackRight(const Pixels& from, BFloat16* to, int64_t to_step);

/// What Multiply leaves in `sums`, of up to 32 inputs and up to two times 16 outputs, as blocks of
/// OIhw16i16o2i: [pair of inputs][output][2], those of the second 16 outputs `apart` behind. Inputs
/// and outputs beyond `in` and `out` are zero.
void StoreWeights(const float* sums, int64_t in, int64_t out, BFloat16* to, int64_t apart);
/// to[i] += from[i].
void Add(int64_t count, const float* from, float* to);

}  // namespace singa::onednn::tiles
