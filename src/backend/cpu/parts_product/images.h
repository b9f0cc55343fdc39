#pragma once

// Images and filters of convolutions as factors and results of a product. A run is 16 channels at a
// tap; the taps of a pixel follow each other, each with all runs. What is outside the image is
// zero.

#include <cstdint>

#include "backend/cpu/parts_product/product.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/conv/spec.h"

namespace singa::cpu::parts_product {

/// Memory of images: pixels of `lanes`, in the order of the batch, and runs of channels.
struct ImageMemory {
  Lanes lanes;
  int64_t run_step;

  ImageMemory(const Shape& shape, LaneTag tag)
      : lanes(shape, tag), run_step(tag == LaneTag::kNhwc ? kRun : lanes.block_step) {}
  int64_t pixels() const { return lanes.height * lanes.width; }
  int64_t runs() const { return CeilDivide(lanes.channels, kRun); }
  int64_t run_length(int64_t run) const { return std::min(kRun, lanes.channels - run * kRun); }
  int64_t offset(int64_t image, int64_t pixel) const {
    return image * lanes.image_step + pixel * lanes.column_step;
  }
};

/// For each pixel of a result, the pixels of images that are added up for it: those of x for
/// outputs in forward, those of dy for inputs in backward.
struct Window {
  struct Axis {
    int64_t results, sources, taps, stride, dilation, pad;
    bool backward;
    /// The position of the source under a tap; -1: none.
    int64_t SourceOf(int64_t result, int64_t tap) const {
      int64_t at = result * stride - pad + tap * dilation;
      if (backward) {
        const int64_t shifted = result + pad - tap * dilation;
        if (shifted < 0 || shifted % stride != 0) return -1;
        at = shifted / stride;
      }
      return at >= 0 && at < sources ? at : -1;
    }
  };
  Axis down, across;
  Window(const Recorder& geometry, bool backward);
  int64_t taps() const { return down.taps * across.taps; }
  int64_t pixels() const { return down.results * across.results; }
};

/// Rows (`along`) or terms are result pixels; terms or rows are the channels under each tap.
class Pixels final : public Factor {
 public:
  Pixels(const float* data, const ImageMemory& memory, const Window& window, bool along)
      : Factor(along), data_(data), memory_(memory), window_(window) {}
  void Locate(int64_t batch, int64_t row, int64_t term, Runs* runs) const override;

 private:
  const float* data_;
  const ImageMemory& memory_;
  const Window& window_;
};

/// Filters in the order (out, taps, in). As the factor of forward, rows are outputs and terms are
/// the inputs' runs under each tap; as that of backward, rows are inputs, terms outputs' runs.
class Filters final : public Factor {
 public:
  Filters(const float* data, int64_t out, int64_t taps, int64_t in, bool backward)
      : Factor(!backward), data_(data), out_(out), taps_(taps), in_(in) {}
  void Locate(int64_t batch, int64_t row, int64_t term, Runs* runs) const override;

 private:
  const float* data_;
  int64_t out_, taps_, in_;
};

/// Rows are pixels, columns are channels. `bias` has a number for each channel, `added` lies as the
/// images do; null: none. Rows may be each `stride`-th pixel of the image down and across only,
/// `window` ones in all.
struct ImageTarget final : Target {
  float* data;
  const ImageMemory& memory;
  int64_t height, width;  ///< of the rows
  int64_t stride = 1;
  const float* bias = nullptr;
  const float* added = nullptr;

  ImageTarget(float* to, const ImageMemory& of, int64_t rows, int64_t columns)
      : data(to), memory(of), height(rows), width(columns) {}
  void Store(int64_t batch, int64_t row, int64_t column, const float* sums) const override;
};

/// Rows are outputs, columns the inputs' runs under each tap, in memory (out, taps, in).
struct FilterTarget final : Target {
  float* data;
  int64_t out, taps, in;

  FilterTarget(float* to, int64_t outputs, int64_t count, int64_t inputs)
      : data(to), out(outputs), taps(count), in(inputs) {}
  void Store(int64_t batch, int64_t row, int64_t column, const float* sums) const override;
};

}  // namespace singa::cpu::parts_product
