#pragma once

#include <vector>

#include "singa/operation/recorder.h"

namespace singa {

enum class PoolMode : int {
  kMax = 0,
  kAverageExcludePad = 1,  ///< divides by the elements inside the input
  kAverageIncludePad = 2,  ///< divides by the elements inside the padded input
};

/// Parameters of a pooling; sizes follow the tensors that are passed.
class SINGA_API PoolingHandle {
 public:
  /// SINGA's argument order. `padding` is (h, w) or (top, left, bottom, right); average pooling
  /// leaves out the padding unless `count_include_pad`.
  PoolingHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                bool is_max = true, bool ceil_mode = false, bool count_include_pad = false,
                const std::vector<int64_t>& dilation = {1, 1});
  Recorder recorder;
  PoolMode mode;
};

/// {y, saved}. `saved` says where the maxima are: int32 in y's shape, the position h · width + w
/// within the image, -1 for a window that sees no element of x (of which the maximum is -inf and
/// the average 0); empty for averages and when `training` is false. The first of equal values is
/// the maximum; NaN wins every maximum. Raises std::invalid_argument and TypeError.
SINGA_API std::vector<Tensor> PoolingForward(const PoolingHandle& handle, const Tensor& x,
                                             bool training = true);
/// dx. `saved` may be empty: it is then found again from x.
SINGA_API Tensor PoolingBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                                 const Tensor& y, const Tensor& saved);
/// Mean over height and width: (N, C, H, W) → (N, C, 1, 1).
SINGA_API Tensor GlobalAveragePoolForward(const Tensor& x);
/// dx, of shape `x_shape`; in the layout of x where that is given.
SINGA_API Tensor GlobalAveragePoolBackward(const Tensor& dy, const Shape& x_shape,
                                           const Tensor& x = Tensor());

}  // namespace singa
