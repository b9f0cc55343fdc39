#pragma once

#include <vector>

#include "singa/operation/recorder.h"

namespace singa {

/// What is computed of each window.
enum class PoolMode : int {
  kMax = 0,
  kAverageExcludePad = 1,  ///< divides by the number of elements inside the input
  kAverageIncludePad = 2,  ///< divides by the number of elements inside the padded input
};

/// Parameters of a pooling. Calls take sizes from their tensors.
class SINGA_API PoolingHandle {
 public:
  /// The arguments are in SINGA's order; the geometry is that of SetupRecorder. `is_max` false:
  /// average pooling, which counts the padding only with `count_include_pad`. `ceil_mode`: see
  /// PoolRecorder. Raises std::invalid_argument.
  PoolingHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                bool is_max = true, bool ceil_mode = false, bool count_include_pad = false,
                const std::vector<int64_t>& dilation = {});
  Recorder recorder;
  PoolMode mode;
};

/// Returns {y, saved}. `saved` has the positions of the maxima: int32 with y's shape, (d · height +
/// h) · width + w within the image. It is empty for averages and if `training` is false. Of equal
/// values the first is the maximum; NaN is larger than any number. A window without any element of
/// x has maximum -inf, average 0 and position -1. A maximum takes int8 and uint8 too, on the CPU,
/// and saves nothing of these; the maximum of nothing is their least number. Raises
/// std::invalid_argument and TypeError.
SINGA_API std::vector<Tensor> PoolingForward(const PoolingHandle& handle, const Tensor& x,
                                             bool training = true);
/// Returns dx. If `saved` is empty, it is recomputed from x.
SINGA_API Tensor PoolingBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                                 const Tensor& y, const Tensor& saved);
/// Mean over all spatial axes, which keep length 1: (N, C, H, W) → (N, C, 1, 1).
SINGA_API Tensor GlobalAveragePoolForward(const Tensor& x);
/// Returns dx with shape `x_shape`, in the layout of x if x is given.
SINGA_API Tensor GlobalAveragePoolBackward(const Tensor& dy, const Shape& x_shape,
                                           const Tensor& x = Tensor());

/// Pooling into `output_size` windows along the spatial axes, whatever the size of x: window i of
/// an axis is [floor(i · size / windows), ceil((i + 1) · size / windows)), as in PyTorch. Returns
/// {y, saved} as PoolingForward does. Raises std::invalid_argument and TypeError.
SINGA_API std::vector<Tensor> AdaptivePoolForward(const Tensor& x,
                                                  const std::vector<int64_t>& output_size,
                                                  bool is_max, bool training = true);
/// Returns dx with shape `x_shape`. A maximum needs x or `saved`. dx is in the layout of x if x is
/// given.
SINGA_API Tensor AdaptivePoolBackward(const Tensor& dy, const Shape& x_shape, bool is_max,
                                      const Tensor& x = Tensor(), const Tensor& saved = Tensor());

/// The p-norm of each window, (Σ |x|^p)^(1/p) for p > 0: of a pooling without padding, whose mode
/// is that of averages. Where `ceil_mode` lets a window hang over the end, the sum is scaled up to
/// a whole window, as in PyTorch. 16-bit floats are computed in float32. Raises
/// std::invalid_argument and TypeError.
SINGA_API Tensor LpPoolForward(const PoolingHandle& handle, const Tensor& x, double p);
/// Returns dx, with the arguments and the result of LpPoolForward. It is 0 where x is 0, and in
/// windows of zeros.
SINGA_API Tensor LpPoolBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                                const Tensor& y, double p);

}  // namespace singa
