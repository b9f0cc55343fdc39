#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// Geometry of one convolution or pooling over (batch, channels, height, width): every input value
/// and every size that follows from them. The only place where output sizes are computed. 1-d is
/// height 1.
class SINGA_API Recorder {
 public:
  Recorder() = default;

  int64_t batchsize = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t height = 0;  ///< of the input
  int64_t width = 0;
  int64_t kernel_h = 0;
  int64_t kernel_w = 0;
  int64_t stride_h = 1;
  int64_t stride_w = 1;
  int64_t pad_top = 0;
  int64_t pad_left = 0;
  int64_t pad_bottom = 0;
  int64_t pad_right = 0;
  int64_t dilation_h = 1;  ///< 1: neighbouring elements
  int64_t dilation_w = 1;
  int64_t group = 1;
  bool bias = true;
  bool ceil_mode = false;  ///< pooling only: a window may hang over the padded edge

  // Derived.
  int64_t conv_height = 0;  ///< of the output
  int64_t conv_width = 0;
  int64_t col_height = 0;  ///< im2col rows of one group: in_channels / group · kernel_h · kernel_w
  int64_t col_width = 0;   ///< im2col columns: conv_height · conv_width
  int64_t imagesize = 0;   ///< elements of one image: in_channels · height · width

  Shape input_shape() const { return {batchsize, in_channels, height, width}; }
  Shape weight_shape() const { return {out_channels, in_channels / group, kernel_h, kernel_w}; }
  Shape output_shape() const { return {batchsize, out_channels, conv_height, conv_width}; }
  std::string ToString() const;
  bool operator==(const Recorder&) const = default;

#ifndef SWIG
  /// Calls `visitor(name, value)` for each input value.
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("batchsize", self.batchsize);
    visitor("in_channels", self.in_channels);
    visitor("out_channels", self.out_channels);
    visitor("height", self.height);
    visitor("width", self.width);
    visitor("kernel_h", self.kernel_h);
    visitor("kernel_w", self.kernel_w);
    visitor("stride_h", self.stride_h);
    visitor("stride_w", self.stride_w);
    visitor("pad_top", self.pad_top);
    visitor("pad_left", self.pad_left);
    visitor("pad_bottom", self.pad_bottom);
    visitor("pad_right", self.pad_right);
    visitor("dilation_h", self.dilation_h);
    visitor("dilation_w", self.dilation_w);
    visitor("group", self.group);
    visitor("bias", self.bias);
    visitor("ceil_mode", self.ceil_mode);
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
};

/// The geometry of a convolution of `input` (N, C, H, W). `kernel`, `stride`, `padding`, `dilation`
/// are (h, w); padding may also be (top, left, bottom, right). Raises std::invalid_argument, naming
/// the argument and the shapes, for anything that gives no convolution: wrong channels, sizes below
/// one, a kernel larger than the padded input, groups that do not divide the channels, sizes that
/// overflow.
SINGA_API Recorder SetupRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                                 const std::vector<int64_t>& stride,
                                 const std::vector<int64_t>& padding, int64_t in_channels,
                                 int64_t out_channels, bool bias,
                                 const std::vector<int64_t>& dilation = {1, 1}, int64_t group = 1);

#ifndef SWIG
/// The same from a shape.
SINGA_API Recorder ConvRecorder(const char* op, const Shape& input,
                                const std::vector<int64_t>& kernel,
                                const std::vector<int64_t>& stride,
                                const std::vector<int64_t>& padding, int64_t out_channels,
                                bool bias, const std::vector<int64_t>& dilation, int64_t group);
/// Geometry of a pooling: out_channels = in_channels. With `ceil_mode` the last window may hang
/// over the padded bottom and right edge but has to start inside the input or its left/top padding
/// (PyTorch's rule).
SINGA_API Recorder PoolRecorder(const char* op, const Shape& input,
                                const std::vector<int64_t>& kernel,
                                const std::vector<int64_t>& stride,
                                const std::vector<int64_t>& padding,
                                const std::vector<int64_t>& dilation, bool ceil_mode);
/// The same geometry for another batch size, height or width of the input.
SINGA_API Recorder WithInput(const char* op, const Recorder& recorder, const Shape& input);
#endif

}  // namespace singa
