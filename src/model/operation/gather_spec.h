#pragma once

#include "model/operation/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa {

/// Rows of x picked by number. Gather and Embedding are the same but for their names and for what a
/// negative number means: counted from the end, and an error.
enum class GatherKind : int { kGather, kEmbedding };
template <>
inline constexpr int kEnumSize<GatherKind> = 2;

/// Inputs: x, plain with any strides; indices, contiguous. Output: contiguous, x's shape with
/// `axis` replaced by `count` indices.
struct GatherSpec {
  GatherKind kind;
  DType dtype;
  DType index_dtype;
  Shape x_shape;
  int axis;
  int64_t count;

  const char* op() const { return kind == GatherKind::kGather ? "Gather" : "EmbeddingForward"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("kind", self.kind);
    v("dtype", self.dtype);
    v("index_dtype", self.index_dtype);
    v("x_shape", self.x_shape);
    v("axis", self.axis);
    v("count", self.count);
  }
};

/// Inputs: dy and indices, contiguous. Output: dx of x_shape; equal indices add up in their order.
struct GatherBackwardSpec {
  GatherKind kind;
  DType dtype;
  DType index_dtype;
  Shape x_shape;
  int axis;
  int64_t count;

  const char* op() const {
    return kind == GatherKind::kGather ? "GatherBackward" : "EmbeddingBackward";
  }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("kind", self.kind);
    v("dtype", self.dtype);
    v("index_dtype", self.index_dtype);
    v("x_shape", self.x_shape);
    v("axis", self.axis);
    v("count", self.count);
  }
};

}  // namespace singa
