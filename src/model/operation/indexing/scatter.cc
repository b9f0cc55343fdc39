// GatherElements, GatherND, ScatterElements and ScatterND (scatter_spec.h).

#include "model/operation/indexing/scatter_spec.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/indexing/gather_spec.h"

namespace singa {
namespace {

/// `indices` has the rank of x and is no longer than it, but for `axis`.
void CheckFitsInside(const char* op, const Shape& indices, const Shape& x_shape, int axis) {
  bool fits = indices.rank() == x_shape.rank();
  for (int i = 0; fits && i < x_shape.rank(); ++i) fits = i == axis || indices[i] <= x_shape[i];
  Check(fits, op, "indices ", indices, " must be of the rank of x ", x_shape,
        " and no longer than it, but for axis ", axis);
}

/// The last axis of `indices` names axes of x behind `batch` common ones.
void CheckNames(const char* op, const Shape& indices, const Shape& x_shape, int64_t batch) {
  Check(indices.rank() >= 1 && x_shape.rank() >= 1, op, "indices ", indices, " and x ", x_shape,
        " must have at least one axis");
  Check(batch >= 0 && batch < indices.rank() && batch < x_shape.rank(), op, "batch_dims ", batch,
        " must be less than the number of axes of indices ", indices, " and of x ", x_shape);
  bool fits = indices.back() >= 1 && indices.back() <= x_shape.rank() - batch;
  for (int i = 0; fits && i < batch; ++i) fits = indices[i] == x_shape[i];
  Check(fits, op, "the last axis of indices ", indices, " must name 1 to ", x_shape.rank() - batch,
        " axes of x ", x_shape, " behind ", batch, " common ones");
}

PositionsSpec ElementsSpec(IndexedOp indexed, const Shape& x_shape, const Tensor& indices,
                           int64_t axis) {
  PositionsSpec spec{indexed, indices.data_type(), x_shape, indices.shape(), 0};
  spec.axis = NormalizeAxis(spec.op(), axis, x_shape.rank());
  CheckFitsInside(spec.op(), indices.shape(), x_shape, spec.axis);
  return spec;
}

PositionsSpec SlicesSpec(IndexedOp indexed, const Shape& x_shape, const Tensor& indices,
                         int64_t batch) {
  PositionsSpec spec{indexed, indices.data_type(), x_shape, indices.shape(), 0};
  CheckNames(spec.op(), indices.shape(), x_shape, batch);
  spec.axis = static_cast<int>(batch);
  return spec;
}

/// The shape of what is gathered, and of updates.
Shape PickedShape(const PositionsSpec& spec) {
  if (spec.by_elements()) return spec.index_shape;
  const int axes = spec.index_shape.rank() - 1;
  Check(axes + spec.x_shape.rank() - spec.first_axis_of_row() <= kMaxRank, spec.op(),
        "the result of x ", spec.x_shape, " and indices ", spec.index_shape, " has more than ",
        kMaxRank, " dimensions");
  Shape shape;
  for (int i = 0; i < axes; ++i) shape.push_back(spec.index_shape[i]);
  for (int i = spec.first_axis_of_row(); i < spec.x_shape.rank(); ++i)
    shape.push_back(spec.x_shape[i]);
  return shape;
}

Tensor Picked(const PositionsSpec& spec, const Tensor& x, const Tensor& indices) {
  const Shape shape = PickedShape(spec);
  return Gather(x.Plain().Reshape({spec.rows(), spec.width()}), 0, Call(spec, {indices}))
      .Reshape(shape);
}

Tensor PickedBackward(const PositionsSpec& spec, const Tensor& dy, const Tensor& indices) {
  CheckShapeIs(spec.op(), "dy", dy, PickedShape(spec));
  const Tensor rows = dy.Plain().Reshape({spec.count(), spec.width()});
  return GatherBackward(rows, {spec.rows(), spec.width()}, 0, Call(spec, {indices}))
      .Reshape(spec.x_shape);
}

/// `x` is what messages show of it.
template <class X>
void CheckReduction(const char* op, ScatterReduction reduction, DType dtype, const X& x) {
  Check(reduction >= ScatterReduction::kNone && reduction <= ScatterReduction::kMin, op,
        "unknown reduction ", static_cast<int>(reduction));
  Check<TypeError>(reduction == ScatterReduction::kNone || dtype != kBool, op,
                   "a reduction needs numbers, got ", x);
}

ScatterFields FieldsOf(const PositionsSpec& spec, ScatterReduction reduction, const Tensor& x) {
  CheckReduction(spec.op(), reduction, x.data_type(), x);
  return {reduction, x.data_type(), spec.rows(), spec.width(), spec.count()};
}

Tensor Scatter(const PositionsSpec& named, const Tensor& x, const Tensor& indices,
               const Tensor& updates, ScatterReduction reduction) {
  const char* op = named.op();
  CheckShapeIs(op, "updates", updates, PickedShape(named));
  const ScatterSpec spec{FieldsOf(named, reduction, x)};
  return Call(spec, {x, Call(named, {indices}), updates}, {.op = op});
}

std::vector<Tensor> ScatterBackward(const PositionsSpec& named, const Tensor& dy,
                                    const Tensor& indices, ScatterReduction reduction,
                                    const Tensor& x, const Tensor& updates, const Tensor& y) {
  const char* op = named.op();
  const ScatterBackwardSpec spec{FieldsOf(named, reduction, dy)};
  const Shape picked = PickedShape(named);
  if (spec.needs_x()) {
    CheckShapeIs(op, "x", x, dy.shape());
    CheckShapeIs(op, "updates", updates, picked);
  }
  if (spec.needs_y()) CheckShapeIs(op, "y", y, dy.shape());
  return CallForAll(spec, {dy, Call(named, {indices}), x, updates, y},
                    {.op = op, .shape = &picked});
}

}  // namespace

Tensor GatherElements(const Tensor& x, const Tensor& indices, int64_t axis) {
  CheckGiven("GatherElements", "x", x);
  CheckIndices("GatherElements", indices, x);
  return Picked(ElementsSpec(IndexedOp::kGatherElements, x.shape(), indices, axis), x, indices);
}

Tensor GatherElementsBackward(const Tensor& dy, const Shape& x_shape, const Tensor& indices,
                              int64_t axis) {
  CheckFloat("GatherElements", "dy", dy);
  CheckIndices("GatherElements", indices, dy);
  return PickedBackward(ElementsSpec(IndexedOp::kGatherElements, x_shape, indices, axis), dy,
                        indices);
}

Tensor GatherND(const Tensor& x, const Tensor& indices, int64_t batch_dims) {
  CheckGiven("GatherND", "x", x);
  CheckIndices("GatherND", indices, x);
  return Picked(SlicesSpec(IndexedOp::kGatherND, x.shape(), indices, batch_dims), x, indices);
}

Tensor GatherNDBackward(const Tensor& dy, const Shape& x_shape, const Tensor& indices,
                        int64_t batch_dims) {
  CheckFloat("GatherND", "dy", dy);
  CheckIndices("GatherND", indices, dy);
  return PickedBackward(SlicesSpec(IndexedOp::kGatherND, x_shape, indices, batch_dims), dy,
                        indices);
}

Tensor ScatterElements(const Tensor& x, const Tensor& indices, const Tensor& updates, int64_t axis,
                       ScatterReduction reduction) {
  CheckGiven("ScatterElements", "x", x);
  CheckIndices("ScatterElements", indices, x);
  return Scatter(ElementsSpec(IndexedOp::kScatterElements, x.shape(), indices, axis), x, indices,
                 updates, reduction);
}

std::vector<Tensor> ScatterElementsBackward(const Tensor& dy, const Tensor& indices, int64_t axis,
                                            ScatterReduction reduction, const Tensor& x,
                                            const Tensor& updates, const Tensor& y) {
  CheckFloat("ScatterElements", "dy", dy);
  CheckIndices("ScatterElements", indices, dy);
  return ScatterBackward(ElementsSpec(IndexedOp::kScatterElements, dy.shape(), indices, axis), dy,
                         indices, reduction, x, updates, y);
}

Tensor ScatterND(const Tensor& x, const Tensor& indices, const Tensor& updates,
                 ScatterReduction reduction) {
  CheckGiven("ScatterND", "x", x);
  CheckIndices("ScatterND", indices, x);
  return Scatter(SlicesSpec(IndexedOp::kScatterND, x.shape(), indices, 0), x, indices, updates,
                 reduction);
}

std::vector<Tensor> ScatterNDBackward(const Tensor& dy, const Tensor& indices,
                                      ScatterReduction reduction, const Tensor& x,
                                      const Tensor& updates, const Tensor& y) {
  CheckFloat("ScatterND", "dy", dy);
  CheckIndices("ScatterND", indices, dy);
  return ScatterBackward(SlicesSpec(IndexedOp::kScatterND, dy.shape(), indices, 0), dy, indices,
                         reduction, x, updates, y);
}

void PositionsSpec::CheckFields(const CallChecker& call) const {
  call.RequireShape(x_shape);
  call.RequireShape(index_shape);
  call.Require(index_dtype != kBool, "indices must hold numbers");
  if (by_elements()) {
    call.RequireAxis(axis, x_shape);
    CheckFitsInside(call.op(), index_shape, x_shape, axis);
  } else {
    CheckNames(call.op(), index_shape, x_shape, axis);
  }
}

void ScatterFields::CheckFields(const CallChecker& call) const {
  call.RequireShape({rows, width});
  call.RequireShape({count, width});
  CheckReduction(call.op(), reduction, dtype, DTypeName(dtype));
}

void ScatterBackwardSpec::CheckFields(const CallChecker& call) const {
  ScatterFields::CheckFields(call);
  call.RequireFloat("dy", dtype);
}

}  // namespace singa
