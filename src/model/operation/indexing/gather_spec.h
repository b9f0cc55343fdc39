#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa {

/// Rows of x by number. Gather counts negative numbers from the end; Embedding raises for them.
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

/// Inputs: dy and indices, contiguous. Output: dx of x_shape. Rows of equal indices are added in
/// their order.
struct GatherBackwardSpec : GatherSpec {
  const char* op() const {
    return kind == GatherKind::kGather ? "GatherBackward" : "EmbeddingBackward";
  }
  void CheckCall(CallChecker& call) const;
};

}  // namespace singa
