#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// Geometry of one convolution or pooling: the parameters and the sizes derived from them. Output
/// sizes are computed nowhere else.
///
/// Images are (N, C, L), (N, C, H, W) or (N, C, D, H, W). The spatial axes are depth, height and
/// width; L is the width. An axis that the images lack has length 1, a kernel of 1 and no padding,
/// so that code for images of two dimensions also takes those of one.
class SINGA_API Recorder {
 public:
  Recorder() = default;

  int64_t batchsize = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int spatial = 2;    ///< number of spatial axes: 1, 2 or 3
  int64_t depth = 1;  ///< of the input
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel_d = 1;
  int64_t kernel_h = 0;
  int64_t kernel_w = 0;
  int64_t stride_d = 1;
  int64_t stride_h = 1;
  int64_t stride_w = 1;
  int64_t pad_front = 0;
  int64_t pad_top = 0;
  int64_t pad_left = 0;
  int64_t pad_back = 0;
  int64_t pad_bottom = 0;
  int64_t pad_right = 0;
  int64_t dilation_d = 1;  ///< distance between kernel elements
  int64_t dilation_h = 1;
  int64_t dilation_w = 1;
  int64_t group = 1;
  bool bias = true;
  bool ceil_mode = false;  ///< pooling only, see PoolRecorder
  bool adaptive = false;   ///< pooling only, see AdaptivePoolRecorder

  // Derived sizes.
  int64_t conv_depth = 1;  ///< of the output
  int64_t conv_height = 0;
  int64_t conv_width = 0;
  int64_t col_height = 0;  ///< im2col rows of one group: in_channels / group · taps()
  int64_t col_width = 0;   ///< im2col columns: conv_pixels()
  int64_t imagesize = 0;   ///< elements of one image: in_channels · pixels()

  Shape input_shape() const { return OfAxes(batchsize, in_channels, depth, height, width); }
  Shape weight_shape() const {
    return OfAxes(out_channels, in_channels / group, kernel_d, kernel_h, kernel_w);
  }
  Shape output_shape() const {
    return OfAxes(batchsize, out_channels, conv_depth, conv_height, conv_width);
  }
  std::string ToString() const;
  bool operator==(const Recorder&) const = default;

#ifndef SWIG
  int64_t taps() const { return kernel_d * kernel_h * kernel_w; }  ///< elements of a kernel
  int64_t pixels() const { return depth * height * width; }        ///< of a channel of the input
  int64_t conv_pixels() const { return conv_depth * conv_height * conv_width; }

  /// The windows along one axis.
  struct Axis {
    const char* name;
    int64_t size;  ///< of the input
    int64_t kernel, stride;
    int64_t before, after;  ///< padding
    int64_t dilation;
    int64_t windows;  ///< size of the output
  };
  static constexpr int kMostAxes = 3;
  /// Depth, height and width, also those that the images lack.
  std::array<Axis, kMostAxes> axes() const;
  /// One number for each axis that the images have, the outermost first.
  std::vector<int64_t> Along(int64_t Axis::*number) const;

  /// Calls `visitor(name, value)` for each member, derived ones included.
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("batchsize", self.batchsize);
    visitor("in_channels", self.in_channels);
    visitor("out_channels", self.out_channels);
    visitor("spatial", self.spatial);
    visitor("depth", self.depth);
    visitor("height", self.height);
    visitor("width", self.width);
    visitor("kernel_d", self.kernel_d);
    visitor("kernel_h", self.kernel_h);
    visitor("kernel_w", self.kernel_w);
    visitor("stride_d", self.stride_d);
    visitor("stride_h", self.stride_h);
    visitor("stride_w", self.stride_w);
    visitor("pad_front", self.pad_front);
    visitor("pad_top", self.pad_top);
    visitor("pad_left", self.pad_left);
    visitor("pad_back", self.pad_back);
    visitor("pad_bottom", self.pad_bottom);
    visitor("pad_right", self.pad_right);
    visitor("dilation_d", self.dilation_d);
    visitor("dilation_h", self.dilation_h);
    visitor("dilation_w", self.dilation_w);
    visitor("group", self.group);
    visitor("bias", self.bias);
    visitor("ceil_mode", self.ceil_mode);
    visitor("adaptive", self.adaptive);
    visitor("conv_depth", self.conv_depth);
    visitor("conv_height", self.conv_height);
    visitor("conv_width", self.conv_width);
    visitor("col_height", self.col_height);
    visitor("col_width", self.col_width);
    visitor("imagesize", self.imagesize);
  }
  template <class Visitor>
  void Visit(Visitor& visitor) const {
    VisitFields(*this, visitor);
  }
  template <class Visitor>
  void Visit(Visitor& visitor) {
    VisitFields(*this, visitor);
  }
#endif

 private:
  Shape OfAxes(int64_t first, int64_t second, int64_t d, int64_t h, int64_t w) const {
    if (spatial == 2) return {first, second, h, w};
    return spatial == 1 ? Shape{first, second, w} : Shape{first, second, d, h, w};
  }
};

/// The geometry of a convolution of `input` (N, C, L), (N, C, H, W) or (N, C, D, H, W). `kernel`,
/// `stride`, `padding` and `dilation` have a number for each spatial axis, such as (h, w).
/// `padding` may also have two, first all that come before the input: (top, left, bottom, right).
/// An empty `dilation` is 1. Raises std::invalid_argument, naming the argument and the shapes, if
/// the channels do not match, a size is below 1 or overflows, the kernel is larger than the padded
/// input, or `group` does not divide the channels.
SINGA_API Recorder SetupRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                                 const std::vector<int64_t>& stride,
                                 const std::vector<int64_t>& padding, int64_t in_channels,
                                 int64_t out_channels, bool bias,
                                 const std::vector<int64_t>& dilation = {}, int64_t group = 1);

#ifndef SWIG
/// The geometry of a convolution for an input shape. Errors name `op`.
SINGA_API Recorder ConvRecorder(const char* op, const Shape& input,
                                const std::vector<int64_t>& kernel,
                                const std::vector<int64_t>& stride,
                                const std::vector<int64_t>& padding, int64_t out_channels,
                                bool bias, const std::vector<int64_t>& dilation, int64_t group);
/// The geometry of a pooling, with out_channels = in_channels. With `ceil_mode` the last window may
/// reach beyond the padded end of an axis if it starts inside the input or the padding before it
/// (PyTorch's rule).
SINGA_API Recorder PoolRecorder(const char* op, const Shape& input,
                                const std::vector<int64_t>& kernel,
                                const std::vector<int64_t>& stride,
                                const std::vector<int64_t>& padding,
                                const std::vector<int64_t>& dilation, bool ceil_mode);
/// The geometry of a pooling with as many windows along each axis as `output` says. Window i of an
/// axis is [floor(i · input / output), ceil((i + 1) · input / output)), as in PyTorch. Where all
/// windows are equal it is that of an ordinary pooling. Otherwise it is `adaptive`: the kernel is
/// the largest window, and stride, padding and dilation mean nothing.
SINGA_API Recorder AdaptivePoolRecorder(const char* op, const Shape& input,
                                        const std::vector<int64_t>& output);
/// The same geometry for another batch size, depth, height or width of the input.
SINGA_API Recorder WithInput(const char* op, const Recorder& recorder, const Shape& input);
/// The number of spatial axes of images with this shape. Raises std::invalid_argument unless it is
/// (N, C, L), (N, C, H, W) or (N, C, D, H, W).
SINGA_API int SpatialAxes(const char* op, const Shape& input);
/// "(N, C, H, W)" for 2 spatial axes, and so on.
SINGA_API const char* ImageAxes(int spatial);
/// "(h, w)" for 2 spatial axes, and so on.
SINGA_API const char* AxisNames(int spatial);
/// Sets the output's sizes along the spatial axes to those of `output`, and nothing else: the
/// bias's gradient takes images of any size.
SINGA_API void TakeOutputSizes(const Shape& output, Recorder* recorder);
#endif

}  // namespace singa
