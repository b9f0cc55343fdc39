#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "singa/core/plan_cache.h"
#include "singa/operation/recorder.h"

namespace singa {

/// Default limit of the memory that one plan may ask for while it runs.
inline constexpr size_t kWorkspaceByteLimit = 1 << 30;

/// Parameters and preference of a convolution. Nothing in it changes by a call: sizes follow the
/// tensors that are passed, so one handle serves every batch size, height and width, from any
/// thread. W is (out, in / group, kh, kw), or for transposed convolution (in, out / group, kh, kw).
class SINGA_API ConvHandle {
 public:
  ConvHandle(const Tensor& input, const std::vector<int64_t>& kernel,
             const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
             int64_t in_channels, int64_t out_channels, bool bias = true, int64_t group = 1,
             const std::vector<int64_t>& dilation = {1, 1},
             size_t workspace_byte_limit = kWorkspaceByteLimit, const std::string& prefer = "");
  ConvHandle(const Recorder& recorder, size_t workspace_byte_limit = kWorkspaceByteLimit,
             const std::string& prefer = "");

  /// The geometry of the tensor that the handle was made with.
  Recorder recorder;
  size_t workspace_byte_limit;
  Preference preference;
  /// No preference was given: each call follows SetPreference.
  bool follows_default;
};

/// y (N, out, oh, ow) of x (N, in, h, w) and W; b (out) may be empty.
///
/// `add`, of y's shape and type, is added, and `relu` then cuts off what is negative: relu(conv(x)
/// + b + add), the end of a residual block whose batch norm was folded into W and b, writes y once.
SINGA_API Tensor ConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                             const ConvHandle& handle, const Tensor& add = Tensor(),
                             bool relu = false);
/// dx, in x's shape; `x_shape` empty: the recorder's input shape with dy's batch size.
SINGA_API Tensor ConvBackwardX(const Tensor& dy, const Tensor& W, const ConvHandle& handle,
                               const Shape& x_shape = {});
SINGA_API Tensor ConvBackwardW(const Tensor& dy, const Tensor& x, const ConvHandle& handle);
SINGA_API Tensor ConvBackwardB(const Tensor& dy, const ConvHandle& handle);
/// {dx, dW, db} in one call; empty where not needed.
SINGA_API std::vector<Tensor> ConvBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                           const ConvHandle& handle, bool need_x, bool need_w,
                                           bool need_b);

/// Transposed convolution (the gradient of a convolution for its input). x (N, in, h, w), W (in,
/// out / group, kh, kw), y (N, out, (h − 1)·stride − pads + dilation·(k − 1) + output_padding + 1,
/// …).
class SINGA_API ConvTransposeHandle {
 public:
  ConvTransposeHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      const std::vector<int64_t>& output_padding, int64_t in_channels,
                      int64_t out_channels, bool bias = true, int64_t group = 1,
                      const std::vector<int64_t>& dilation = {1, 1});
  /// Geometry of the convolution whose input gradient this is: its output is our input.
  Recorder recorder;
  std::vector<int64_t> output_padding;
};
SINGA_API Tensor ConvTransposeForward(const Tensor& x, const Tensor& W, const Tensor& b,
                                      const ConvTransposeHandle& handle);
SINGA_API std::vector<Tensor> ConvTransposeBackward(const Tensor& dy, const Tensor& x,
                                                    const Tensor& W,
                                                    const ConvTransposeHandle& handle, bool need_x,
                                                    bool need_w, bool need_b);

}  // namespace singa
