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
  int spatial = 2;  ///< number of spatial axes: 1, 2 or 3
  int64_t group = 1;
  bool bias = true;
  bool ceil_mode = false;  ///< pooling only, see PoolRecorder
  bool adaptive = false;   ///< pooling only, see AdaptivePoolRecorder

  // Derived sizes.
  int64_t col_height = 0;  ///< im2col rows of one group: in_channels / group · taps()
  int64_t col_width = 0;   ///< im2col columns: conv_pixels()
  int64_t imagesize = 0;   ///< elements of one image: in_channels · pixels()

#ifndef SWIG
  /// The windows along one axis.
  struct Axis {
    int64_t size = 1;  ///< of the input
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t before = 0, after = 0;  ///< padding
    int64_t dilation = 1;           ///< distance between kernel elements
    int64_t windows = 1;            ///< size of the output, which follows from the other numbers
    bool operator==(const Axis&) const = default;
  };
  static constexpr int kMostAxes = 3;
  static constexpr std::array<const char*, kMostAxes> kAxisNames = {"depth", "height", "width"};
  /// Depth, height and width, also those that the images lack. Their numbers also have the names
  /// below, which in Python are attributes.
  std::array<Axis, kMostAxes> axes = {};
  /// One number for each axis that the images have, the outermost first.
  std::vector<int64_t> Along(int64_t Axis::*number) const;

  int64_t depth() const { return axes[0].size; }
  int64_t height() const { return axes[1].size; }
  int64_t width() const { return axes[2].size; }
  int64_t kernel_d() const { return axes[0].kernel; }
  int64_t kernel_h() const { return axes[1].kernel; }
  int64_t kernel_w() const { return axes[2].kernel; }
  int64_t stride_d() const { return axes[0].stride; }
  int64_t stride_h() const { return axes[1].stride; }
  int64_t stride_w() const { return axes[2].stride; }
  int64_t pad_front() const { return axes[0].before; }
  int64_t pad_top() const { return axes[1].before; }
  int64_t pad_left() const { return axes[2].before; }
  int64_t pad_back() const { return axes[0].after; }
  int64_t pad_bottom() const { return axes[1].after; }
  int64_t pad_right() const { return axes[2].after; }
  int64_t dilation_d() const { return axes[0].dilation; }
  int64_t dilation_h() const { return axes[1].dilation; }
  int64_t dilation_w() const { return axes[2].dilation; }
  int64_t conv_depth() const { return axes[0].windows; }
  int64_t conv_height() const { return axes[1].windows; }
  int64_t conv_width() const { return axes[2].windows; }
#endif

  Shape input_shape() const { return OfAxes<&Axis::size>(batchsize, in_channels); }
  Shape weight_shape() const { return OfAxes<&Axis::kernel>(out_channels, in_channels / group); }
  Shape output_shape() const { return OfAxes<&Axis::windows>(batchsize, out_channels); }
  std::string ToString() const;
  bool operator==(const Recorder&) const = default;

#ifndef SWIG
  int64_t taps() const { return Product<&Axis::kernel>(); }  ///< elements of a kernel
  int64_t pixels() const { return Product<&Axis::size>(); }  ///< of a channel of the input
  int64_t conv_pixels() const { return Product<&Axis::windows>(); }

  /// Calls `visitor(name, value)` for each member, derived ones included.
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("batchsize", self.batchsize);
    visitor("in_channels", self.in_channels);
    visitor("out_channels", self.out_channels);
    visitor("spatial", self.spatial);
    VisitAxes<&Axis::size>(self, visitor, "depth", "height", "width");
    VisitAxes<&Axis::kernel>(self, visitor, "kernel_d", "kernel_h", "kernel_w");
    VisitAxes<&Axis::stride>(self, visitor, "stride_d", "stride_h", "stride_w");
    VisitAxes<&Axis::before>(self, visitor, "pad_front", "pad_top", "pad_left");
    VisitAxes<&Axis::after>(self, visitor, "pad_back", "pad_bottom", "pad_right");
    VisitAxes<&Axis::dilation>(self, visitor, "dilation_d", "dilation_h", "dilation_w");
    visitor("group", self.group);
    visitor("bias", self.bias);
    visitor("ceil_mode", self.ceil_mode);
    visitor("adaptive", self.adaptive);
    VisitAxes<&Axis::windows>(self, visitor, "conv_depth", "conv_height", "conv_width");
    visitor("col_height", self.col_height);
    visitor("col_width", self.col_width);
    visitor("imagesize", self.imagesize);
  }
#endif

 private:
#ifndef SWIG
  // The number is a template argument, since these run in each call of a convolution.
  template <int64_t Axis::*kNumber, class Self, class Visitor>
  static void VisitAxes(Self& self, Visitor& visitor, const char* d, const char* h, const char* w) {
    visitor(d, self.axes[0].*kNumber);
    visitor(h, self.axes[1].*kNumber);
    visitor(w, self.axes[2].*kNumber);
  }
  template <int64_t Axis::*kNumber>
  int64_t Product() const {
    return axes[0].*kNumber * axes[1].*kNumber * axes[2].*kNumber;
  }
  template <int64_t Axis::*kNumber>
  Shape OfAxes(int64_t first, int64_t second) const {
    const int64_t d = axes[0].*kNumber, h = axes[1].*kNumber, w = axes[2].*kNumber;
    if (spatial == 2) return {first, second, h, w};
    return spatial == 1 ? Shape{first, second, w} : Shape{first, second, d, h, w};
  }
#endif
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
