#pragma once

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa {

/// Rows of x by number. Gather counts negative numbers from the end; Embedding raises for them.
enum class GatherKind : int { kGather, kEmbedding };
template <>
inline constexpr int kEnumSize<GatherKind> = 2;

/// y has x's shape with `axis` replaced by `count` indices.
struct GatherSpec {
  GatherKind kind;
  DType dtype;
  DType index_dtype;
  Shape x_shape;
  int axis;
  int64_t count;

  const char* op() const { return kind == GatherKind::kGather ? "Gather" : "EmbeddingForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", x_shape, dtype, {.strided = true});
    visit.Input("indices", {count}, index_dtype, {.flat = true});
    visit.Output("y", {size()}, dtype, {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  int64_t size() const {
    return x_shape.Count(0, axis) * count * x_shape.Count(axis + 1, x_shape.rank());
  }
  SINGA_FIELDS(kind, dtype, index_dtype, x_shape, axis, count);
};

/// Rows of equal indices are added in their order.
struct GatherBackwardSpec : GatherSpec {
  const char* op() const {
    return kind == GatherKind::kGather ? "GatherBackward" : "EmbeddingBackward";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", {size()}, dtype, {.flat = true});
    visit.Input("indices", {count}, index_dtype, {.flat = true});
    visit.Output("dx", x_shape, dtype);
  }
  void CheckFields(const CallChecker& call) const;
};

}  // namespace singa
