#pragma once

// Winograd's transforms of image tiles and of filters. Values are stored as [position][...], with
// `position_step` between positions. They are float32 for bfloat16 images and filters, too: values
// rounded to bfloat16 would lose bits that the transforms need.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/winograd/transform.h"
#include "core/layout/channel_lanes.h"

namespace singa::cpu::winograd {

/// Images as vectors of kLanes channels. If channels do not fill the last vector, it is padded with
/// zeros in blocked images, and overlaps the vector before in channels-last images.
template <int64_t kLanes>
struct Image {
  Image(const Shape& shape, LaneTag tag) {
    const Lanes lanes(shape, tag);
    channels = lanes.channels;
    blocks = (channels + kLanes - 1) / kLanes;
    height = lanes.height;
    width = lanes.width;
    image_step = lanes.image_step;
    block_step = tag == LaneTag::kNhwc ? kLanes : lanes.block_step;
    row_step = lanes.row_step;
    column_step = lanes.column_step;
    channels_last = tag == LaneTag::kNhwc;
  }
  /// Number of channels in a block that earlier blocks do not hold.
  int64_t filled(int64_t block) const { return std::min(kLanes, channels - block * kLanes); }
  /// The first channel of a vector, and its offset in a pixel.
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

/// The tiles that cover the outputs of all images, row by row, each with `out_down` x `out_across`
/// outputs.
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

/// How to read a row-major filter (out, in, down, across): as it is, or, if `turned`, transposed
/// and rotated for the gradient of the input.
struct Filter {
  int64_t depth;                  // channels of the sum
  int64_t lane_step, depth_step;  // weight strides of results and of summed channels
  int64_t results;                // valid results, at most a vector of them
  bool turned;
};

/// The epilogue of the sums: y = relu(sum + bias + add). Null pointers and `relu` = false skip a
/// step. `add` has y's layout, and may be y itself.
template <class T>
struct After {
  const T* bias;
  const T* add;
  bool relu;
};

/// Loops over tiles for Taps. T is the type of images and filters, float or BFloat16. Instantiated
/// for the filters of WithTaps and 8 lanes, which need AVX2 or NEON, or 16, which need AVX-512.
template <class T, int64_t kLanes, class Taps>
struct Kernels {
  /// Transforms all channels of the input tile at (h, w). Pixels outside the image are zero.
  static void TransformInput(const Image<kLanes>& image, const T* x, int64_t h, int64_t w,
                             float* values, int64_t position_step);
  /// Transforms the output gradients of the tile at (h, w).
  static void TransformOutputGradient(const Image<kLanes>& image, const T* dy, int64_t h, int64_t w,
                                      float* values, int64_t position_step);
  /// Computes the outputs at (h, w) that are inside the image, for `blocks` blocks of channels
  /// starting at block `first`.
  static void TransformOutput(const Image<kLanes>& image, int64_t first, int64_t blocks,
                              const float* values, int64_t position_step, const After<T>& after,
                              int64_t h, int64_t w, T* y);
  /// Transforms the weights of a vector of results at every depth to [position][depth][columns].
  static void TransformFilter(const Filter& filter, const T* weights, float* values,
                              int64_t position_step, int64_t columns);
  /// Computes the weight gradients of one result from those of its values, [position][depth].
  static void TransformFilterGradient(int64_t depth, const float* values, int64_t position_step,
                                      T* weights);
  /// Adds `count` numbers to those at `to`.
  static void Add(int64_t count, const float* from, float* to);
  /// Adds the sum of a row of `count` pixels to `sums`, for one vector of channels.
  static void SumRow(const T* row, int64_t step, int64_t count, double* sums);
};

/// Kernels of some Taps, and their sizes. Plans read this table, so that they are compiled once for
/// all filters.
template <class T, int64_t kLanes>
struct Loops {
  template <class Taps>
  static constexpr Loops For() {
    using K = Kernels<T, kLanes, Taps>;
    return {Taps::kDown,
            Taps::kAcross,
            Taps::kWeights,
            Taps::kOutDown,
            Taps::kOutAcross,
            Taps::kPositions,
            K::TransformInput,
            K::TransformOutputGradient,
            K::TransformOutput,
            K::TransformFilter,
            K::TransformFilterGradient,
            K::Add,
            K::SumRow};
  }

  int64_t down, across, weights;  // of the filter
  int64_t out_down, out_across, positions;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::TransformInput) transform_input;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::TransformOutputGradient) transform_output_gradient;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::TransformOutput) transform_output;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::TransformFilter) transform_filter;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::TransformFilterGradient) transform_filter_gradient;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::Add) add;
  decltype(&Kernels<T, kLanes, Taps<3, 3>>::SumRow) sum_row;
};

}  // namespace singa::cpu::winograd
