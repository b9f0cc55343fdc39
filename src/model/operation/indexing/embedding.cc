#include "singa/operation/embedding.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/indexing/gather_spec.h"

namespace singa {

namespace {

void CheckIndices(const char* op, const Tensor& x) {
  CheckGiven(op, "x", x);
  Check<TypeError>(x.data_type() != kBool, op, "x must hold integers or floats, got ", x);
}

Shape WithWidth(Shape shape, int64_t width) {
  shape.push_back(width);
  return shape;
}

}  // namespace

Tensor EmbeddingForward(const Tensor& x, const Tensor& W) {
  const char* op = "EmbeddingForward";
  CheckIndices(op, x);
  CheckGiven(op, "W", W);
  Check(W.rank() == 2, op, "W must be (vocabulary, width), got ", W);
  CheckSameDevice(op, "x", x, "W", W);
  const GatherSpec spec{
      GatherKind::kEmbedding, W.data_type(), x.data_type(), W.shape(), 0, x.size()};
  const Shape y_shape = WithWidth(x.shape(), W.shape()[1]);
  return Call(spec, {W, x}, {.shape = &y_shape});
}

Tensor EmbeddingBackward(const Tensor& dy, const Tensor& x, const Shape& w_shape) {
  const char* op = "EmbeddingBackward";
  CheckIndices(op, x);
  CheckFloat(op, "dy", dy);
  Check(w_shape.rank() == 2, op, "W must be (vocabulary, width), got shape ", w_shape);
  CheckShapeIs(op, "dy", dy, WithWidth(x.shape(), w_shape[1]));
  CheckSameDevice(op, "x", x, "dy", dy);
  const GatherBackwardSpec spec{
      GatherKind::kEmbedding, dy.data_type(), x.data_type(), w_shape, 0, x.size()};
  return Call(spec, {dy, x});
}

}  // namespace singa
