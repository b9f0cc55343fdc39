// Tile, Repeat, Roll, ChannelShuffle, Pad and Upsample: each element of y is one of x, found axis
// by axis (axis_map_spec.h).

#include <cmath>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/layout/axis_map_spec.h"
#include "singa/operation/indexing.h"

namespace singa {

namespace {

constexpr int64_t kFlattened = -1000;
constexpr int64_t kMostPadding = int64_t{1} << 48;

Tensor Forward(AxisMapSpec spec, const Tensor& x, double constant = 0) {
  spec.layout = x.layout();
  CallOptions options;
  options.scalars.v[0] = constant;
  return Call(spec, {x}, options);
}

Tensor Backward(AxisMapBackwardSpec spec, const Tensor& dy) {
  spec.layout = dy.layout();
  return Call(spec, {dy});
}

// Counts per axis, none negative and no axis longer than memory.
Shape Repeats(const char* op, const char* name, const std::vector<int64_t>& repeats,
              const Shape& x_shape, int64_t least) {
  const Shape result(repeats);
  for (int axis = 0; axis < result.rank(); ++axis) {
    Check(result[axis] >= least, op, name, " ", result, " must be at least ", least);
    int64_t length = 0;
    Check(!__builtin_mul_overflow(result[axis], x_shape[axis], &length), op, name, " ", result,
          " is too large for x ", x_shape);
  }
  return result;
}

// NumPy's rule: the shorter of shape and repeats is extended by ones in front.
struct TileArguments {
  Shape shape;
  Shape repeats;
};
TileArguments ArrangeTile(const char* op, const Shape& x_shape,
                          const std::vector<int64_t>& repeats) {
  Shape shape = x_shape;
  std::vector<int64_t> counts = repeats;
  Check(counts.size() <= static_cast<size_t>(kMaxRank), op, counts.size(),
        " repeats, but a tensor has at most ", kMaxRank, " dimensions");
  while (static_cast<int>(counts.size()) < shape.rank()) counts.insert(counts.begin(), 1);
  while (shape.rank() < static_cast<int>(counts.size())) shape.insert(0, 1);
  return {shape, Repeats(op, "repeats", counts, shape, 0)};
}

void CheckPads(const char* op, const AxisMapFields& fields, int axis) {
  const int64_t begin = fields.first[axis], end = fields.last[axis];
  Check(std::max(begin, end) <= kMostPadding && std::min(begin, end) >= -kMostPadding, op, "pads ",
        begin, " and ", end, " of axis ", axis, " are out of range");
  const int64_t length = fields.OutLength(axis);
  Check(length >= 0, op, "pads ", begin, " and ", end, " crop axis ", axis, " of shape ",
        fields.x_shape, " to less than nothing");
  Check(fields.x_shape[axis] > 0 || length == 0 || fields.kind == AxisMapKind::kPadConstant, op,
        fields.kind == AxisMapKind::kPadReflect ? "reflect"
        : fields.kind == AxisMapKind::kPadEdge  ? "edge"
                                                : "wrap",
        " padding needs an element along axis ", axis, " of shape ", fields.x_shape);
}

AxisMapFields ArrangePad(const char* op, DType dtype, const Shape& x_shape, const std::string& mode,
                         const std::vector<int64_t>& pads) {
  AxisMapFields fields;
  fields.dtype = dtype;
  fields.x_shape = x_shape;
  if (mode == "constant") {
    fields.kind = AxisMapKind::kPadConstant;
  } else if (mode == "reflect") {
    fields.kind = AxisMapKind::kPadReflect;
  } else if (mode == "edge") {
    fields.kind = AxisMapKind::kPadEdge;
  } else if (mode == "wrap") {
    fields.kind = AxisMapKind::kPadWrap;
  } else {
    Check(false, op, "mode must be constant, reflect, edge or wrap, got '", mode, "'");
  }
  const int rank = x_shape.rank();
  Check(static_cast<int64_t>(pads.size()) == 2 * rank, op, "needs ", 2 * rank, " pads for shape ",
        x_shape, ", got ", pads.size());
  for (int axis = 0; axis < rank; ++axis) {
    fields.first.push_back(pads[axis]);
    fields.last.push_back(pads[axis + rank]);
    CheckPads(op, fields, axis);
  }
  return fields;
}

Shape NoLast(const Shape& shape) { return Shape::Filled(shape.rank(), 0); }

}  // namespace

Tensor Tile(const Tensor& x, const std::vector<int64_t>& repeats) {
  const char* op = "Tile";
  CheckGiven(op, "x", x);
  const auto [shape, counts] = ArrangeTile(op, x.shape(), repeats);
  return Forward({{AxisMapKind::kTile, x.data_type(), shape, counts, NoLast(shape)}},
                 x.Reshape(shape));
}

Tensor TileBackward(const Tensor& dy, const Shape& x_shape, const std::vector<int64_t>& repeats) {
  const char* op = "TileBackward";
  CheckFloat(op, "dy", dy);
  const auto [shape, counts] = ArrangeTile(op, x_shape, repeats);
  return Backward({{AxisMapKind::kTile, dy.data_type(), shape, counts, NoLast(shape)}}, dy)
      .Reshape(x_shape);
}

Tensor Repeat(const Tensor& given, const std::vector<int64_t>& repeats, int64_t axis) {
  const char* op = "Repeat";
  CheckGiven(op, "x", given);
  const Tensor x = axis == kFlattened ? given.Reshape({-1}) : given;
  const int a = axis == kFlattened ? 0 : NormalizeAxis(op, axis, x.rank());
  const int64_t length = x.shape()[a];
  if (repeats.size() == 1) {
    std::vector<int64_t> counts(x.rank(), 1);
    counts[a] = repeats[0];
    return Forward({{AxisMapKind::kRepeat, x.data_type(), x.shape(),
                     Repeats(op, "repeats", counts, x.shape(), 0), NoLast(x.shape())}},
                   x);
  }
  Check(static_cast<int64_t>(repeats.size()) == length, op,
        "needs one count, or one for each element of axis ", a, " of x ", x.shape(), ", got ",
        repeats.size());
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < length; ++i) {
    Check(repeats[i] >= 0, op, "repeats must be at least 0, got ", repeats[i], " for element ", i);
    Check(repeats[i] <= kMostPadding, op, "repeats ", repeats[i], " is too large");
    positions.insert(positions.end(), static_cast<size_t>(repeats[i]), i);
  }
  Tensor indices({static_cast<int64_t>(positions.size())}, x.device(), kInt64);
  indices.CopyFromHost(positions.data(), positions.size() * sizeof(int64_t));
  return Gather(x, a, indices);
}

Tensor Pad(const Tensor& x, const std::string& mode, const std::vector<int64_t>& pads,
           double constant) {
  CheckGiven("Pad", "x", x);
  return Forward({ArrangePad("Pad", x.data_type(), x.shape(), mode, pads)}, x, constant);
}

Tensor PadBackward(const Tensor& dy, const Shape& x_shape, const std::string& mode,
                   const std::vector<int64_t>& pads) {
  CheckFloat("PadBackward", "dy", dy);
  return Backward({ArrangePad("PadBackward", dy.data_type(), x_shape, mode, pads)}, dy);
}

Tensor Upsample(const Tensor& x, const std::vector<int64_t>& scales) {
  const char* op = "Upsample";
  CheckGiven(op, "x", x);
  Check(static_cast<int>(scales.size()) == x.rank(), op, "needs one scale for each axis of x ",
        x.shape(), ", got ", scales.size());
  return Forward({{AxisMapKind::kUpsample, x.data_type(), x.shape(),
                   Repeats(op, "scales", scales, x.shape(), 1), NoLast(x.shape())}},
                 x);
}

Tensor UpsampleBackward(const Tensor& dy, const std::vector<int64_t>& scales) {
  const char* op = "UpsampleBackward";
  CheckFloat(op, "dy", dy);
  Check(static_cast<int>(scales.size()) == dy.rank(), op, "needs one scale for each axis of dy ",
        dy.shape(), ", got ", scales.size());
  Shape x_shape = dy.shape();
  for (int axis = 0; axis < dy.rank(); ++axis) {
    Check(scales[axis] >= 1 && x_shape[axis] % scales[axis] == 0, op, "scale ", scales[axis],
          " does not divide axis ", axis, " of dy ", dy.shape());
    x_shape[axis] /= scales[axis];
  }
  return Backward({{AxisMapKind::kUpsample, dy.data_type(), x_shape,
                    Repeats(op, "scales", scales, x_shape, 1), NoLast(x_shape)}},
                  dy);
}

Tensor Roll(const Tensor& x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& axes) {
  const char* op = "Roll";
  CheckGiven(op, "x", x);
  Check(shifts.size() == axes.size(), op, "needs one shift for each axis, got shifts ",
        List{shifts}, " and axes ", List{axes});
  AxisMapFields fields{AxisMapKind::kRoll, x.data_type(), x.shape(), NoLast(x.shape()),
                       NoLast(x.shape())};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = NormalizeAxis(op, axes[i], x.rank());
    const int64_t length = std::max<int64_t>(x.shape()[axis], 1);
    const int64_t shift = (shifts[i] % length + length) % length;
    int64_t& total = fields.first[axis];
    total = total < length - shift ? total + shift : total - (length - shift);
  }
  return Forward({fields}, x);
}

Tensor ChannelShuffle(const Tensor& x, int64_t groups) {
  const char* op = "ChannelShuffle";
  CheckGiven(op, "x", x);
  Check(x.rank() >= 2, op, "needs an axis of channels behind that of images, got x ", x.shape());
  Check(groups >= 1 && x.shape()[1] % groups == 0, op, groups,
        " groups do not divide the channels of x ", x.shape());
  AxisMapFields fields{AxisMapKind::kShuffle, x.data_type(), x.shape(), Shape::Filled(x.rank(), 1),
                       NoLast(x.shape())};
  fields.first[1] = groups;
  return Forward({fields}, x);
}

void AxisMapFields::CheckFields(const CallChecker& call) const {
  const Shape& x = x_shape;
  call.RequireShape(x);
  call.Require(first.rank() == x.rank() && last.rank() == x.rank(),
               "needs one number for each axis of x ", x, ", got ", first, " and ", last);
  if (IsPad(kind)) {
    for (int axis = 0; axis < x.rank(); ++axis) CheckPads(call.op(), *this, axis);
  } else if (kind == AxisMapKind::kRoll) {
    for (int axis = 0; axis < x.rank(); ++axis)
      call.Require(
          first[axis] >= 0 && first[axis] < std::max<int64_t>(x[axis], 1) && last[axis] == 0,
          "shift ", first, " is not one of x ", x);
  } else if (kind == AxisMapKind::kShuffle) {
    for (int axis = 0; axis < x.rank(); ++axis)
      call.Require(first[axis] >= 1 && x[axis] % first[axis] == 0 && last[axis] == 0, "groups ",
                   first, " do not divide x ", x);
  } else {
    const int64_t least = kind == AxisMapKind::kUpsample ? 1 : 0;
    Repeats(call.op(), "repeats", first.ToVector(), x, least);
    call.Require(last == NoLast(x), "only a padding has two numbers for an axis");
  }
  call.RequireShape(OutShape());
}

void AxisMapBackwardSpec::CheckFields(const CallChecker& call) const {
  AxisMapFields::CheckFields(call);
  call.RequireFloat("dy", dtype);
}

}  // namespace singa
