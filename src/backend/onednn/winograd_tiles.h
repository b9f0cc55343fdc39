#pragma once

// Winograd's transforms of tiles that lie in images, and of filters. Values lie as [position][...]:
// `position_step` is the way from one position's to the next one's.

#include <algorithm>
#include <cstdint>

#include "backend/onednn/channel_lanes.h"
#include "backend/onednn/winograd_transform.h"

namespace singa::onednn::winograd {

/// Images as vectors of kLanes channels: where those of a pixel lie. Where channels do not fill the
/// last vector, it has zeros in blocked images; in channels-last ones it overlaps the one before.
template <int64_t kLanes>
struct Image {
  Image(const Shape& shape, LaneTag tag) {
    const Lanes lanes(shape, tag);
    channels = lanes.channels;
    blocks = (channels + kLanes - 1) / kLanes;
    height = lanes.height;
    width = lanes.width;
    image_step = lanes.image_step;
    block_step = tag == LaneTag::nhwc ? kLanes : lanes.block_step;
    row_step = lanes.row_step;
    column_step = lanes.column_step;
    channels_last = tag == LaneTag::nhwc;
  }
  /// Channels that a block adds to those before it.
  int64_t filled(int64_t block) const { return std::min(kLanes, channels - block * kLanes); }
  /// The first channel of a vector, and where it lies in a pixel.
  int64_t channel(int64_t block) const {
    return channels_last ? std::min(block * kLanes, channels - kLanes) : block * kLanes;
  }
  int64_t offset(int64_t block) const {
    return channels_last ? channel(block) : block * block_step;
  }
  int64_t channels, blocks, height, width;
  int64_t image_step, block_step, row_step, column_step;
  bool channels_last;
};

/// The tiles that cover the outputs of all images, row by row; `out_down` x `out_across` of them
/// each.
struct Tiles {
  Tiles(int64_t images, int64_t height, int64_t width, int64_t out_down, int64_t out_across)
      : down((height + out_down - 1) / out_down),
        across((width + out_across - 1) / out_across),
        count(images * down * across),
        out_down(out_down),
        out_across(out_across) {}
  struct Place {
    int64_t image, h, w;  // of the first output
  };
  Place At(int64_t tile) const {
    return {tile / (down * across), tile / across % down * out_down, tile % across * out_across};
  }
  int64_t down, across, count, out_down, out_across;
};

/// How a row-major filter (out, in, down, across) is read: as it is, or as the one that takes
/// gradients of outputs to gradients of inputs, which is transposed and turned around.
struct Filter {
  int64_t depth;                  // channels of the sums
  int64_t lane_step, depth_step;  // between the weights of results, and of those channels
  int64_t results;                // that exist, up to a vector of them
  bool turned;
};

/// What becomes of sums: y = relu(sum + bias + add), each as far as it is there. `add` lies as y
/// does, and may be y itself.
struct After {
  const float* bias;
  const float* add;
  bool relu;
};

/// The loops over tiles, for Taps. Instantiated for 8 and 16 lanes and the filters that `Refuses`
/// names.
template <int64_t kLanes, class Taps>
struct Kernels {
  /// The inputs of a tile from (h, w) on, zeros outside of the image, of all channels.
  static void TransformInput(const Image<kLanes>& image, const float* x, int64_t h, int64_t w,
                             float* values, int64_t position_step);
  /// The gradients of its outputs from (h, w) on.
  static void TransformOutputGradient(const Image<kLanes>& image, const float* dy, int64_t h,
                                      int64_t w, float* values, int64_t position_step);
  /// To the outputs from (h, w) on that the image has; `blocks` blocks of channels from `first` on.
  static void TransformOutput(const Image<kLanes>& image, int64_t first, int64_t blocks,
                              const float* values, int64_t position_step, const After& after,
                              int64_t h, int64_t w, float* y);
  /// A vector of results' weights at every depth, to [position][depth][columns].
  static void TransformFilter(const Filter& filter, const float* weights, float* values,
                              int64_t position_step, int64_t columns);
  /// Gradients of one result's weights from those of their values, [position][depth].
  static void TransformFilterGradient(int64_t depth, const float* values, int64_t position_step,
                                      float* weights);
  /// Adds `count` numbers to those at `to`.
  static void Add(int64_t count, const float* from, float* to);
  /// Adds the sums over a row of `count` pixels, a vector of channels of each, to `sums`.
  static void SumRow(const float* row, int64_t step, int64_t count, double* sums);
};

}  // namespace singa::onednn::winograd
