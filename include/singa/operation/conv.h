#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "singa/dispatch/plan_cache.h"
#include "singa/operation/recorder.h"

namespace singa {

/// Default limit of a plan's workspace, in bytes.
inline constexpr size_t kWorkspaceByteLimit = 1 << 30;

/// Parameters and preference of a convolution with weights W (out, in / group, kernel). Calls do
/// not change a handle and take sizes from their tensors, so one handle serves all batch sizes,
/// depths, heights and widths, from any thread.
class SINGA_API ConvHandle {
 public:
  /// The arguments are those of SetupRecorder. `prefer` is the name of a Preference; "": each call
  /// follows SetPreference. `workspace_byte_limit` holds where that is limited_workspace or
  /// autotune. Raises std::invalid_argument like SetupRecorder, and for other names.
  ConvHandle(const Tensor& input, const std::vector<int64_t>& kernel,
             const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
             int64_t in_channels, int64_t out_channels, bool bias = true, int64_t group = 1,
             const std::vector<int64_t>& dilation = {},
             size_t workspace_byte_limit = kWorkspaceByteLimit, const std::string& prefer = "");
  ConvHandle(const Recorder& recorder, size_t workspace_byte_limit = kWorkspaceByteLimit,
             const std::string& prefer = "");

  /// The geometry for `input`.
  Recorder recorder;
  size_t workspace_byte_limit;
  Preference preference;
  /// True if no preference was given, so that each call follows SetPreference.
  bool follows_default;
};

/// Returns y (N, out, ...) for x (N, in, ...) with one to three spatial axes; b (out) may be empty.
///
/// `add`, with y's shape and type, is added to the result; then `relu` applies max(·, 0). So the
/// end of a residual block whose batch normalisation is folded into W and b writes y once.
SINGA_API Tensor ConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                             const ConvHandle& handle, const Tensor& add = Tensor(),
                             bool relu = false);
/// Returns dx with shape `x_shape`; if that is empty, with the recorder's input shape and dy's
/// batch size.
SINGA_API Tensor ConvBackwardX(const Tensor& dy, const Tensor& W, const ConvHandle& handle,
                               const Shape& x_shape = {});
/// Returns dW in the shape of W.
SINGA_API Tensor ConvBackwardW(const Tensor& dy, const Tensor& x, const ConvHandle& handle);
/// Returns db (out): dy summed over the batch and all positions.
SINGA_API Tensor ConvBackwardB(const Tensor& dy, const ConvHandle& handle);
/// Returns {dx, dW, db}, empty where not needed.
SINGA_API std::vector<Tensor> ConvBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                           const ConvHandle& handle, bool need_x, bool need_w,
                                           bool need_b);

/// Transposed convolution: the gradient of a convolution with respect to its input. x is (N, in, h,
/// w), W (in, out / group, kh, kw) and y (N, out, oh, ow), where oh = (h − 1)·stride − pad_top −
/// pad_bottom + dilation·(kh − 1) + output_padding + 1; ow likewise. Images of one and three
/// spatial axes likewise. output_padding is smaller than the stride or the dilation.
class SINGA_API ConvTransposeHandle {
 public:
  ConvTransposeHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      const std::vector<int64_t>& output_padding, int64_t in_channels,
                      int64_t out_channels, bool bias = true, int64_t group = 1,
                      const std::vector<int64_t>& dilation = {});
  /// The geometry of that convolution: its output has the shape of x.
  Recorder recorder;
  /// What is left of it: from a stride on, it takes the place of padding after the image. The rest
  /// that is not smaller than a stride is at the end of y, where the bias is alone.
  std::vector<int64_t> output_padding;
};
/// Returns y (N, out, ...); b (out) may be empty.
SINGA_API Tensor ConvTransposeForward(const Tensor& x, const Tensor& W, const Tensor& b,
                                      const ConvTransposeHandle& handle);
/// Returns {dx, dW, db}, empty where not needed.
SINGA_API std::vector<Tensor> ConvTransposeBackward(const Tensor& dy, const Tensor& x,
                                                    const Tensor& W,
                                                    const ConvTransposeHandle& handle, bool need_x,
                                                    bool need_w, bool need_b);

}  // namespace singa
