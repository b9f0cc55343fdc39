#include "singa/operation/indexing.h"

#include <algorithm>
#include <limits>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/indexing/gather_spec.h"
#include "model/operation/indexing/spec.h"
#include "singa/core/stats.h"

namespace singa {

namespace {

// A view; of an opaque tensor a copy, where it can be had in such a layout too.
Tensor Piece(const Tensor& x, int axis, int64_t start, int64_t length) {
  if (x.is_blocked()) {
    const SplitSpec spec{x.data_type(), x.shape(), axis, start, length, x.layout()};
    const DevicePtr device = x.device();
    const PlanPtr plan = FindPlan(*device, spec);
    if (plan->input_layout(0)) {
      const Tensor y = NewOutput(*plan, 0, spec.OutShape(), device, spec.dtype);
      Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {y});
      return y;
    }
  }
  return x.SliceAxis(axis, start, start + length);
}

/// Python's slice of an axis, likewise.
Tensor Range(const Tensor& x, int axis, int64_t start, int64_t stop) {
  const int64_t n = x.shape()[axis];
  const auto place = [n](int64_t i) { return i < 0 ? std::max(i, -n) + n : std::min(i, n); };
  const int64_t length = std::max<int64_t>(place(stop) - place(start), 0);
  return length == n ? x : Piece(x, axis, place(start), length);
}

/// Zeros around what a view of x takes, whose steps are 1, in its layout.
Tensor Padded(const Tensor& dy, const Shape& x_shape, const Tensor& view) {
  std::vector<int64_t> begin, end;
  int64_t offset = view.offset();
  for (int axis = 0; axis < x_shape.rank(); ++axis) {
    const int64_t stride = view.strides()[axis];
    begin.push_back(offset / stride);
    end.push_back(x_shape[axis] - begin.back() - dy.shape()[axis]);
    offset %= stride;
  }
  begin.insert(begin.end(), end.begin(), end.end());
  return Pad(dy, "constant", begin);
}

// shape[:axis] + middle + shape[axis + 1:]
Shape Replaced(const char* op, const Shape& shape, int axis, const Shape& middle) {
  Check(shape.rank() - 1 + middle.rank() <= kMaxRank, op, "the result of shape ", shape,
        " and indices ", middle, " has more than ", kMaxRank, " dimensions");
  Shape result;
  for (int i = 0; i < axis; ++i) result.push_back(shape[i]);
  for (int64_t dim : middle) result.push_back(dim);
  for (int i = axis + 1; i < shape.rank(); ++i) result.push_back(shape[i]);
  return result;
}

/// How tensors are joined, and the layouts in which they are read.
struct Joining {
  Tensor Input(const Tensor& x, size_t i) const {
    return wanted ? x.ToLayout((*wanted)[i]) : x.Plain();
  }
  bool Moves(const Tensor& x, size_t i) const {
    return x.is_blocked() && !(wanted && SameLayout(x.layout(), (*wanted)[i]));
  }

  ConcatSpec spec;
  PlanPtr plan;
  std::optional<std::vector<LayoutPtr>> wanted;  ///< nothing where strides are followed
  int64_t moved = 0;  ///< elements of opaque tensors that have to be reordered
};

Joining JoiningOf(const ConcatSpec& spec, const std::vector<Tensor>& xs) {
  const Device& device = *xs.front().device();
  const PlanPtr plan = FindPlan(device, spec);
  Joining joining{spec, plan, spec.InputLayouts(*plan, xs)};
  for (size_t i = 0; i < xs.size(); ++i)
    if (joining.Moves(xs[i], i)) joining.moved += xs[i].size();
  return joining;
}

}  // namespace

Tensor Concat(const std::vector<Tensor>& xs, int64_t axis) {
  const char* op = "Concat";
  Check(!xs.empty(), op, "needs at least one tensor");
  for (const Tensor& x : xs) CheckGiven(op, "one of the tensors", x);
  const Tensor& front = xs.front();
  Check(front.rank() > 0, op, "scalars cannot be joined");
  const int a = NormalizeAxis(op, axis, front.rank());
  Shape shape = front.shape();
  for (size_t i = 1; i < xs.size(); ++i) {
    const Tensor& x = xs[i];
    bool fits = x.rank() == front.rank();
    for (int d = 0; fits && d < x.rank(); ++d) fits = d == a || x.shape()[d] == shape[d];
    Check(fits, op, "tensor ", i, " ", x.shape(), " does not fit tensor 0 ", front.shape(),
          " beside axis ", a);
    Check<TypeError>(x.data_type() == front.data_type(), op, "tensor ", i, " is ",
                     DTypeName(x.data_type()), ", tensor 0 ", DTypeName(front.data_type()));
    CheckSameDevice(op, "a tensor", x, "tensor 0", front);
    shape[a] += x.shape()[a];
  }
  ConcatSpec spec{front.data_type(), a};
  const auto opaque =
      std::find_if(xs.begin(), xs.end(), [](const Tensor& x) { return x.is_blocked(); });
  if (opaque != xs.end()) {
    spec.x_layout = opaque->layout();
    spec.y_shape = shape;
  }
  Joining joining = JoiningOf(spec, xs);
  // The first one's layout may be rare among the others. It may also be two layouts at once: images
  // with one block of channels are channels-last, too.
  for (size_t i = 0; i < xs.size() && joining.moved > 0; ++i) {
    if (!joining.Moves(xs[i], i)) continue;
    spec.x_layout = xs[i].layout();
    if (Joining other = JoiningOf(spec, xs); other.moved < joining.moved)
      joining = std::move(other);
  }
  SetCurrentOp(op);
  const DevicePtr device = front.device();
  const Tensor y = NewOutput(*joining.plan, 0, shape, device, spec.dtype);
  std::vector<Tensor> inputs;
  inputs.reserve(xs.size());
  for (size_t i = 0; i < xs.size(); ++i) inputs.push_back(joining.Input(xs[i], i));
  Run(joining.spec, device, joining.plan, std::span<const Tensor>(inputs),
      std::span<const Tensor>(&y, 1));
  return y;
}

std::vector<Tensor> Split(const Tensor& x, int64_t axis, const std::vector<int64_t>& parts) {
  const char* op = "Split";
  CheckGiven(op, "x", x);
  const int a = NormalizeAxis(op, axis, x.rank());
  int64_t rest = x.shape()[a];
  bool fits = true;
  for (int64_t part : parts) {
    fits = fits && part >= 0 && part <= rest;
    if (fits) rest -= part;
  }
  Check(fits && rest == 0, op, "parts ", List{parts}, " do not add up to axis ", a, " of x ",
        x.shape());
  std::vector<Tensor> pieces;
  pieces.reserve(parts.size());
  int64_t start = 0;
  for (int64_t part : parts) {
    pieces.push_back(Piece(x, a, start, part));
    start += part;
  }
  return pieces;
}

Tensor Slice(const Tensor& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
             const std::vector<int64_t>& axes, const std::vector<int64_t>& steps) {
  const char* op = "Slice";
  CheckGiven(op, "x", x);
  const size_t n = starts.size();
  Check(ends.size() == n && (axes.empty() || axes.size() == n) &&
            (steps.empty() || steps.size() == n),
        op, "starts, ends, axes and steps must be of one length, got ", n, ", ", ends.size(), ", ",
        axes.size(), ", ", steps.size());
  Check(n <= static_cast<size_t>(x.rank()), op, n, " starts for x ", x.shape());
  uint32_t seen = 0;
  Tensor y = x;
  for (size_t i = 0; i < n; ++i) {
    const int axis = NormalizeAxis(op, axes.empty() ? static_cast<int64_t>(i) : axes[i], x.rank());
    Check(!(seen >> axis & 1), op, "axis ", axis, " appears twice for x ", x.shape());
    seen |= uint32_t{1} << axis;
    const int64_t step = steps.empty() ? 1 : steps[i];
    Check(step != 0, op, "the step of axis ", axis, " is zero");
    y = step == 1 ? Range(y, axis, starts[i], ends[i])
                  : y.SliceAxis(axis, starts[i], ends[i], step);
  }
  return y;
}

Tensor SliceBackward(const Tensor& dy, const Shape& x_shape, const std::vector<int64_t>& starts,
                     const std::vector<int64_t>& ends, const std::vector<int64_t>& axes,
                     const std::vector<int64_t>& steps) {
  const char* op = "SliceBackward";
  CheckFloat(op, "dy", dy);
  const DevicePtr device = dy.device();
  const Tensor dx(x_shape, device, dy.data_type());
  const Tensor view = Slice(dx, starts, ends, axes, steps);
  CheckShapeIs(op, "dy", dy, view.shape());
  if (dy.is_blocked() && view.strides() == dx.strides()) return Padded(dy, x_shape, view);
  const SliceBackwardSpec spec{dy.data_type(), view.offset(), view.strides()};
  const PlanPtr plan = FindPlan(*device, spec);
  Run(spec, device, plan, {dy.Plain()}, {dx});
  return dx;
}

Tensor Gather(const Tensor& x, int64_t axis, const Tensor& indices) {
  const char* op = "Gather";
  CheckGiven(op, "x", x);
  CheckIndices(op, indices, x);
  const int a = NormalizeAxis(op, axis, x.rank());
  const GatherSpec spec{GatherKind::kGather, x.data_type(), indices.data_type(), x.shape(), a,
                        indices.size()};
  const Shape y_shape = Replaced(op, x.shape(), a, indices.shape());
  return Call(spec, {x, indices}, {.shape = &y_shape});
}

Tensor GatherBackward(const Tensor& dy, const Shape& x_shape, int64_t axis, const Tensor& indices) {
  const char* op = "GatherBackward";
  CheckFloat(op, "dy", dy);
  CheckIndices(op, indices, dy);
  const int a = NormalizeAxis(op, axis, x_shape.rank());
  CheckShapeIs(op, "dy", dy, Replaced(op, x_shape, a, indices.shape()));
  const GatherBackwardSpec spec{
      GatherKind::kGather, dy.data_type(), indices.data_type(), x_shape, a, indices.size()};
  return Call(spec, {dy, indices});
}

Tensor OneHot(const Tensor& indices, int64_t depth, double off, double on, int64_t axis,
              DataType dtype) {
  const char* op = "OneHot";
  CheckIndices(op, indices, indices);
  Check(depth >= 0, op, "depth must be at least 0, got ", depth);
  Check(indices.rank() < kMaxRank, op, "indices ", indices.shape(), " has no room for one more of ",
        kMaxRank, " dimensions");
  SizeOf(dtype);  // refuses values that are no type
  const int a = NormalizeAxis(op, axis, indices.rank() + 1);
  Shape shape = indices.shape();
  shape.insert(a, depth);
  const OneHotSpec spec{dtype, indices.data_type(), indices.shape().Count(0, a), depth,
                        indices.shape().Count(a, indices.rank())};
  CallOptions options{.shape = &shape};
  options.scalars.v[0] = off;
  options.scalars.v[1] = on;
  return Call(spec, {indices}, options);
}

Tensor NonZero(const Tensor& x) {
  CheckGiven("NonZero", "x", x);
  const DevicePtr device = x.device();
  const Tensor dense = x.Contiguous();
  const Tensor counts = Call(CountNonZeroSpec{x.data_type()}, {dense});
  std::vector<int64_t> before(static_cast<size_t>(counts.size()));
  counts.CopyToHost(before.data(), before.size() * sizeof(int64_t));
  int64_t total = 0;
  for (int64_t& piece : before) total += std::exchange(piece, total);
  Tensor starts(counts.shape(), device, kInt64);
  starts.CopyFromHost(before.data(), before.size() * sizeof(int64_t));

  const NonZeroSpec spec{x.data_type()};
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, {x.rank(), total}, device, kInt64);
  Run(spec, device, plan, {dense, starts}, {y});
  return y;
}

std::optional<std::vector<LayoutPtr>> ConcatSpec::InputLayouts(
    const Plan& plan, std::span<const Tensor> inputs) const {
  const LayoutPtr layout = plan.output_layout(0);
  if (!layout) return std::nullopt;
  std::vector<LayoutPtr> layouts(inputs.size());
  const Device& device = *inputs.front().device();
  int64_t start = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t length = inputs[i].shape()[axis];
    layouts[i] =
        FindPlan(device, SplitSpec{dtype, y_shape, axis, start, length, layout})->output_layout(0);
    start += length;
  }
  return layouts;
}

void ConcatSpec::CheckCall(CallChecker& call) const {
  Shape shape = call.ShapeOfInput(0);
  call.RequireAxis(axis, shape);
  int64_t length = 0;
  bool follows = !x_layout;
  for (size_t i = 0; i < call.num_inputs(); ++i) {
    shape[axis] = call.ShapeOfInput(i).rank() == shape.rank() ? call.ShapeOfInput(i)[axis] : 0;
    call.Input("x", shape, dtype, {.strided = true});
    length += shape[axis];
    follows = follows || (x_layout->shape() == shape && x_layout->dtype() == dtype);
  }
  shape[axis] = length;
  call.Require(follows, "x_layout ", LayoutName(x_layout), " is that of no tensor");
  call.Require(y_shape == (x_layout ? shape : Shape()), "y_shape is ", y_shape, " instead of ",
               shape);
  call.Output("y", shape, dtype);
}

void SplitSpec::CheckFields(const CallChecker& call) const {
  call.RequireShape(x_shape);
  call.RequireAxis(axis, x_shape);
  call.Require(
      start >= 0 && length >= 0 && start <= x_shape[axis] && length <= x_shape[axis] - start,
      "no piece of axis ", axis, " of x ", x_shape, " begins at ", start, " and has length ",
      length);
}

void SliceBackwardSpec::CheckCall(CallChecker& call) const {
  call.RequireFloat("dy", dtype);
  const Shape shape = call.ShapeOfInput(0);
  call.Input("dy", shape, dtype, {.strided = true});
  const Shape dx = call.ShapeOfOutput(0);
  call.Output("dx", dx, dtype);
  call.Require(strides.rank() == shape.rank(), "strides ", strides, " are not those of dy ", shape);
  // Bounded by the length of dx, so nothing overflows.
  int64_t first = offset, last = offset;
  for (int axis = 0; axis < shape.rank() && shape.Count() > 0; ++axis) {
    const int64_t steps = shape[axis] - 1, most = dx.Count();
    call.Require(steps == 0 || (strides[axis] >= -most && strides[axis] <= most && steps <= most),
                 "strides ", strides, " leave dx ", dx);
    if (steps > 0) (strides[axis] < 0 ? first : last) += steps * strides[axis];
  }
  call.Require(shape.Count() == 0 || (offset >= 0 && first >= 0 && last < dx.Count()), "offset ",
               offset, " and strides ", strides, " leave dx ", dx);
}

void OneHotSpec::CheckFields(const CallChecker& call) const {
  call.RequireShape({outer, depth, inner});
  call.RequireShape({outer, inner});
  call.Require(index_dtype != kBool, "indices must hold numbers");
}

void NonZeroSpec::CheckCall(CallChecker& call) const {
  call.Input("x", call.ShapeOfInput(0), dtype);
  const Tensor& x = call.input(0);
  const int64_t pieces = (x.size() + kNonZeroPiece - 1) / kNonZeroPiece;
  call.Input("counts before", {pieces}, kInt64);
  // The kernel writes to these positions.
  const Tensor truth = x.AsType(kBool);
  const std::span<const uint8_t> values = call.Values<uint8_t>(truth);
  const std::span<const int64_t> counts = call.Values<int64_t>(call.input(1));
  int64_t total = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    if (i % kNonZeroPiece == 0)
      call.Require(counts[static_cast<size_t>(i / kNonZeroPiece)] == total,
                   "the counts are not those of x");
    total += values[static_cast<size_t>(i)];
  }
  call.Output("y", {x.rank(), total}, kInt64);
}

void GatherSpec::CheckFields(const CallChecker& call) const {
  call.RequireShape(x_shape);
  call.RequireAxis(axis, x_shape);
  call.Require(index_dtype != kBool, "indices must hold numbers");
  Shape y_shape = x_shape;
  y_shape[axis] = count;
  call.RequireShape(y_shape);
}

void GatherBackwardSpec::CheckFields(const CallChecker& call) const {
  GatherSpec::CheckFields(call);
  call.RequireFloat("dy", dtype);
}

}  // namespace singa
