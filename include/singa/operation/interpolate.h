#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// kArea averages the positions of x that a position of the result covers, wholly or in part, as
/// adaptive average pooling does: from floor(i · in / out) up to ceil((i + 1) · in / out).
enum class InterpolationMode : int { kNearest, kLinear, kCubic, kArea };

/// The coordinate in x of position i of the result, along an axis of `in` and `out` positions that
/// is scaled by `scale`. The names are those of ONNX's Resize.
enum class CoordinateMode : int {
  kHalfPixel,         ///< (i + 0.5) / scale − 0.5
  kPytorchHalfPixel,  ///< the same; 0 if out is 1
  kAlignCorners,      ///< i · (in − 1) / (out − 1); 0 if out is 1
  kAsymmetric,        ///< i / scale
  kHalfPixelSymmetric,  ///< kHalfPixel, moved so that the centres of both agree if out ≠ scale · in
};

/// Which neighbour is the nearest one.
enum class NearestMode : int { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };

/// How images are interpolated. kArea has no coordinates and no scales: lengths alone count.
///
/// cubic_coeff_a    the coefficient a of the cubic kernel (Keys 1981): −0.75 in PyTorch, −0.5 in
/// PIL exclude_outside  positions outside x have no weight, and the other weights are scaled so
/// that
///                  their sum stays 1. Otherwise those positions have the value at the edge.
/// antialias        linear and cubic kernels are stretched by 1 / scale along axes that shrink, and
///                  positions outside x are excluded, as in PIL and PyTorch
class SINGA_API InterpolationHandle {
 public:
  explicit InterpolationHandle(InterpolationMode mode,
                               CoordinateMode coordinates = CoordinateMode::kHalfPixel,
                               NearestMode nearest = NearestMode::kRoundPreferFloor,
                               double cubic_coeff_a = -0.75, bool exclude_outside = false,
                               bool antialias = false);
  InterpolationMode mode;
  CoordinateMode coordinates;
  NearestMode nearest;
  double cubic_coeff_a;
  bool exclude_outside, antialias;
};

/// x of a float type, resized to `sizes` along up to three `axes`. `scales`, if not empty, are the
/// factors that coordinates are computed with, where they differ from size / length. Elements with
/// weight 0 do not count, even if they are infinite. With mode kNearest other types are accepted,
/// too. Channels-last and blocked images keep their layout.
SINGA_API Tensor Interpolate(const InterpolationHandle& handle, const Tensor& x,
                             const std::vector<int64_t>& axes, const std::vector<int64_t>& sizes,
                             const std::vector<double>& scales = {});
/// Returns dx of shape `x_shape`.
SINGA_API Tensor InterpolateBackward(const InterpolationHandle& handle, const Tensor& dy,
                                     const Shape& x_shape, const std::vector<int64_t>& axes,
                                     const std::vector<double>& scales = {});

}  // namespace singa
