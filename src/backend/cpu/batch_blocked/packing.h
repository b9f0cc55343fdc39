#pragma once

// Conversion between images or filters in oneDNN's layouts and the tiles of product.h. A tile holds
// one pixel of many images, which are far apart in memory. The summed index is that of 32 images
// (PackLeft, PackRight) or of 32 channels of 16 images (PackImages).

#include <cstdint>

#include "backend/cpu/batch_blocked/product.h"

namespace singa::cpu::batch_blocked {

/// Pixels of up to 32 images: `columns` pixels, `column_step` elements apart. Groups of 16
/// contiguous channels are `group_step` apart. The last group is padded with zeros, or with
/// `channels_last` holds only channels % 16.
struct Pixels {
  const BFloat16* first;
  int64_t images, image_step;
  int64_t columns, column_step;
  int64_t channels, group_step;
  bool channels_last;
};

/// Packs left tiles, [channel][image], or right tiles, [pair of images][channel][2]. Channels from
/// 16 · g on go to to + g · to_step, pixel by pixel. Missing images and channels are zero.
void PackLeft(const Pixels& from, BFloat16* to, int64_t to_step);
void PackRight(const Pixels& from, BFloat16* to, int64_t to_step);

/// Packs left tiles of 16 images, [image][channel], with 32 channels each. Channels from 32 · k on
/// go to to + k · to_step, pixel by pixel.
void PackImages(const Pixels& from, BFloat16* to, int64_t to_step);

/// The destination of results: up to 32 images and two groups of 16 channels, as in Pixels.
struct Images {
  int64_t images, image_step;
  int64_t channels, group_step;
  bool channels_last;
};
/// Stores one pixel: the `sums` of Multiply, [image][channel], plus the channels' bias if it is not
/// null. Padding channels become zero.
void StoreImages(const float* sums, const BFloat16* bias, const Images& images, BFloat16* to);

/// Stores the `sums` of Multiply, for up to 32 inputs and 32 outputs, as blocks of OIhw16i16o2i:
/// [pair of inputs][output][2]. The block of the second 16 outputs follows after `apart` elements.
/// Inputs and outputs beyond `in` and `out` are zero.
void StoreWeights(const float* sums, int64_t in, int64_t out, BFloat16* to, int64_t apart);
/// to[i] += from[i].
void Add(int64_t count, const float* from, float* to);

}  // namespace singa::cpu::batch_blocked
