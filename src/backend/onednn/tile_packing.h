#pragma once

// Between images or filters in oneDNN's layouts and the tiles of tile_product.h. Tiles take one
// pixel of many images, in whose order they lie anyway far apart: what is summed up are 32 images
// (PackLeft, PackRight) or 32 channels of 16 images (PackImages).

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

/// Left tiles of 16 images, [image][channel], 32 channels each: of channels 32 · k and on at
/// to + k · to_step, pixel by pixel.
void PackImages(const Pixels& from, BFloat16* to, int64_t to_step);

/// Where results belong: up to 32 images and two groups of 16 channels, as in Pixels.
struct Images {
  int64_t images, image_step;
  int64_t channels, group_step;
  bool channels_last;
};
/// One pixel of them: what Multiply leaves in `sums`, [image][channel], and bias of the channels
/// where that is not null. Channels that fill up a group are zero.
void StoreImages(const float* sums, const BFloat16* bias, const Images& images, BFloat16* to);

/// What Multiply leaves in `sums`, of up to 32 inputs and up to two times 16 outputs, as blocks of
/// OIhw16i16o2i: [pair of inputs][output][2], those of the second 16 outputs `apart` behind. Inputs
/// and outputs beyond `in` and `out` are zero.
void StoreWeights(const float* sums, int64_t in, int64_t out, BFloat16* to, int64_t apart);
/// to[i] += from[i].
void Add(int64_t count, const float* from, float* to);

}  // namespace singa::onednn::tiles
