#pragma once

// Tensors (B, H, N, D) of heads. Kernels read and write them by strides, with a contiguous last
// axis.

#include "model/dispatch/call_check.h"
#include "singa/core/tensor.h"

namespace singa {

/// Plain, with a contiguous last axis.
inline Tensor HeadRows(const Tensor& t) {
  const Tensor plain = t.Plain();
  const int last = plain.rank() - 1;
  return plain.shape(last) <= 1 || plain.strides()[last] == 1 ? plain : plain.Contiguous();
}

/// A result (B, H, N, D) in memory of this order, or (B, N, H, D) where `like` lies so: heads that
/// were split off an axis can then be merged again by a view.
inline Tensor NewHeadRows(const Shape& shape, const Tensor& like) {
  const Strides& strides = like.strides();
  if (strides[1] >= strides[2]) return Tensor(shape, like.device(), like.data_type());
  return Tensor({shape[0], shape[2], shape[1], shape[3]}, like.device(), like.data_type())
      .Transpose({0, 2, 1, 3});
}

inline void CheckHeadRow(const CallChecker& call, const char* name, const opcheck::Placement& place,
                         const Shape& shape) {
  const int last = shape.rank() - 1;
  call.Require(
      !place.layout && (place.strides.rank() == 0 || shape[last] <= 1 || place.strides[last] == 1),
      name, " must have a contiguous last axis, got strides ", place.strides);
}

/// The next argument is input number `i`.
inline void CheckHeadInput(CallChecker& call, size_t i, const char* name, const Shape& shape,
                           DType dtype) {
  call.StridedInput(name, shape, dtype);
  CheckHeadRow(call, name, call.input_place(i), shape);
}

/// The next result is output number `i`.
inline void CheckHeadOutput(CallChecker& call, size_t i, bool wanted, const char* name,
                            const Shape& shape, DType dtype) {
  if (!wanted) {
    call.OutputIf(false, name, shape, dtype);
    return;
  }
  call.StridedOutput(name, shape, dtype);
  CheckHeadRow(call, name, call.output_place(i), shape);
}

}  // namespace singa
