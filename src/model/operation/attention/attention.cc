#include "singa/operation/attention.h"

#include <cmath>

#include "model/dispatch/dispatch.h"
#include "model/formula/attention.h"
#include "model/operation/attention/heads.h"
#include "model/operation/attention/spec.h"
#include "model/operation/check.h"

namespace singa {
namespace {

/// The largest integer up to which all integers are doubles, as scalars are.
constexpr int64_t kMostQuery = int64_t{1} << 53;

void CheckNumbers(const char* op, double scale, double dropout, int64_t first_query) {
  Check(std::isfinite(scale), op, "scale must be finite, got ", scale);
  Check(dropout >= 0 && dropout < 1, op, "dropout ", dropout, " is not in [0, 1)");
  Check(first_query >= -kMostQuery && first_query <= kMostQuery, op, "first_query ", first_query,
        " is not in [-2^53, 2^53]");
}

void CheckHeads(const char* op, int64_t heads, int64_t kv_heads) {
  Check(kv_heads > 0 ? heads % kv_heads == 0 : heads == 0, op, "the ", kv_heads,
        " heads of k and v must divide the ", heads, " heads of q");
}

/// The first axis of a mask of four axes: B, or a divisor of it.
int64_t MaskBatch(const Tensor& mask, int64_t batch) {
  const int64_t own = mask.rank() == 4 ? mask.shape(0) : 1;
  return own > 0 && batch % own == 0 ? own : batch;
}

void CheckMaskType(const char* op, DType dtype) {
  Check<TypeError>(dtype == kBool || IsFloat(dtype), op,
                   "mask must be bool or of a float type, got ", DTypeName(dtype));
}

AttentionGeometry GeometryOf(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& mask, bool causal, double dropout) {
  CheckFloat(op, "q", q);
  Check(q.rank() == 4, op, "q must have shape (B, H, N, D), got ", q);
  CheckGiven(op, "k", k);
  Check(k.rank() == 4, op, "k must have shape (B, H', M, D), got ", k);
  const AttentionGeometry geometry{.batch = q.shape(0),
                                   .heads = q.shape(1),
                                   .kv_heads = k.shape(1),
                                   .queries = q.shape(2),
                                   .keys = k.shape(2),
                                   .dim = q.shape(3),
                                   .value_dim = !v.empty() && v.rank() == 4 ? v.shape(3) : 0,
                                   .dtype = q.data_type(),
                                   .has_mask = !mask.empty(),
                                   .mask_batch = mask.empty() ? 1 : MaskBatch(mask, q.shape(0)),
                                   .causal = causal,
                                   .has_dropout = dropout > 0};
  const struct {
    const char* name;
    const Tensor& tensor;
    Shape shape;
  } sides[] = {{"k", k, geometry.k_shape()}, {"v", v, geometry.v_shape()}};
  for (const auto& side : sides) {
    CheckGiven(op, side.name, side.tensor);
    Check(side.tensor.shape() == side.shape, op, side.name, " must have shape ", side.shape,
          ", as q ", q.shape(), " and k ", k.shape(), " have it, got ", side.tensor);
    CheckDType(op, side.name, side.tensor, q.data_type());
    CheckSameDevice(op, side.name, side.tensor, "q", q);
  }
  CheckHeads(op, geometry.heads, geometry.kv_heads);
  if (!mask.empty()) {
    CheckMaskType(op, mask.data_type());
    const Shape wanted = geometry.mask_shape();
    Check(mask.rank() <= 4 && BroadcastShapes(op, mask.shape(), wanted) == wanted, op,
          "mask must broadcast to ",
          Shape{geometry.batch, geometry.heads, geometry.queries, geometry.keys}, ", got ", mask);
    CheckSameDevice(op, "mask", mask, "q", q);
  }
  return geometry;
}

/// As kernels read it: a view of the shape of the scores.
Tensor Broadcast(const Tensor& mask, const AttentionGeometry& geometry) {
  return mask.empty() ? mask : mask.Plain().Broadcast(geometry.mask_shape());
}

/// The mask's shape with all four axes.
Shape FourAxes(Shape shape) {
  while (shape.rank() < 4) shape.insert(0, 1);
  return shape;
}

Scalars ScalarsOf(double scale, double dropout, bool causal, int64_t first_query) {
  Scalars scalars;
  scalars.v = {scale, dropout, causal ? static_cast<double>(first_query) : 0};
  return scalars;
}

}  // namespace

std::vector<Tensor> AttentionForward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& mask, double scale, bool causal,
                                     int64_t first_query, double dropout) {
  const AttentionForwardSpec spec{GeometryOf("AttentionForward", q, k, v, mask, causal, dropout)};
  CheckNumbers(spec.op(), scale, dropout, first_query);
  const DevicePtr device = q.device();
  const PlanPtr plan = FindPlan(*device, spec);
  Scalars scalars = ScalarsOf(scale, dropout, causal, first_query);
  if (spec.has_dropout)
    device->TakeRandom(formula::AttentionDropoutWords(
                           static_cast<uint64_t>(spec.logsumexp_shape().Count()), spec.keys),
                       &scalars);
  const Tensor queries = HeadRows(q);
  const Tensor y = NewHeadRows(spec.y_shape(), queries);
  const Tensor logsumexp(spec.logsumexp_shape(), device, spec.logsumexp_type());
  const Tensor draw = spec.has_dropout ? Tensor({2}, device, kInt64) : Tensor();
  Run(spec, device, plan, {queries, HeadRows(k), HeadRows(v), Broadcast(mask, spec)},
      {y, logsumexp, draw}, scalars);
  return {y, logsumexp, draw};
}

std::vector<Tensor> AttentionBackward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const Tensor& mask, const Tensor& y,
                                      const Tensor& logsumexp, const Tensor& draw, double scale,
                                      bool causal, int64_t first_query, double dropout, bool need_q,
                                      bool need_k, bool need_v, bool need_mask) {
  AttentionBackwardSpec spec{GeometryOf("AttentionBackward", q, k, v, mask, causal, dropout),
                             need_q, need_k, need_v};
  CheckNumbers(spec.op(), scale, dropout, first_query);
  CheckShapeIs(spec.op(), "y", y, spec.y_shape());
  CheckDType(spec.op(), "y", y, spec.dtype);
  CheckLike(spec.op(), "dy", dy, "y", y);
  CheckShapeIs(spec.op(), "logsumexp", logsumexp, spec.logsumexp_shape());
  CheckDType(spec.op(), "logsumexp", logsumexp, spec.logsumexp_type());
  if (spec.has_dropout) {
    CheckShapeIs(spec.op(), "draw", draw, {2});
    CheckDType(spec.op(), "draw", draw, kInt64);
  }
  for (const Tensor& t : {y, logsumexp, draw}) CheckSameDevice(spec.op(), "a result", t, "q", q);
  if (need_mask) {
    CheckGiven(spec.op(), "mask", mask);
    CheckFloat(spec.op(), "mask", mask);  // a bool mask has no gradient
    spec.dmask = FourAxes(mask.shape());
  }
  if (!need_q && !need_k && !need_v && !need_mask) return {Tensor(), Tensor(), Tensor(), Tensor()};

  const DevicePtr device = q.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor queries = HeadRows(q), keys = HeadRows(k), values = HeadRows(v);
  const Tensor dq = need_q ? NewHeadRows(spec.q_shape(), queries) : Tensor();
  const Tensor dk = need_k ? NewHeadRows(spec.k_shape(), keys) : Tensor();
  const Tensor dv = need_v ? NewHeadRows(spec.v_shape(), values) : Tensor();
  const Tensor dmask = need_mask ? Tensor(spec.dmask, device, spec.logsumexp_type()) : Tensor();
  Run(spec, device, plan,
      {HeadRows(dy), queries, keys, values, Broadcast(mask, spec), HeadRows(y),
       logsumexp.Contiguous(), spec.has_dropout ? draw.Contiguous() : Tensor()},
      {dq, dk, dv, dmask}, ScalarsOf(scale, dropout, causal, first_query));
  return {dq, dk, dv, need_mask ? dmask.Reshape(mask.shape()).AsType(mask.data_type()) : Tensor()};
}

namespace {

/// The fields of both directions, and the scalars.
void CheckGeometry(const AttentionGeometry& g, const CallChecker& call) {
  call.RequireFloat("q", g.dtype);
  for (const Shape& shape : {g.q_shape(), g.k_shape(), g.v_shape(), g.y_shape(), g.mask_shape()})
    call.RequireShape(shape);
  CheckHeads(call.op(), g.heads, g.kv_heads);
  call.Require(g.mask_batch > 0 ? g.batch % g.mask_batch == 0 : g.batch == 0, "mask_batch ",
               g.mask_batch, " does not divide the batch ", g.batch);
  const auto& v = call.scalars().v;
  const double first_query = v[2];
  call.Require(std::abs(first_query) <= static_cast<double>(kMostQuery) &&
                   first_query == std::trunc(first_query),
               "first_query must be a whole number, got ", first_query);
  CheckNumbers(call.op(), v[0], v[1], static_cast<int64_t>(first_query));
  call.Require(g.has_dropout == (v[1] > 0), "has_dropout does not go with dropout ", v[1]);
}

void CheckMask(CallChecker& call, const AttentionGeometry& g) {
  if (!g.has_mask) return call.NoInput("mask");
  CheckMaskType(call.op(), call.StridedInput("mask", g.mask_shape()).data_type());
}

}  // namespace

void AttentionForwardSpec::CheckCall(CallChecker& call) const {
  CheckGeometry(*this, call);
  CheckHeadInput(call, 0, "q", q_shape(), dtype);
  CheckHeadInput(call, 1, "k", k_shape(), dtype);
  CheckHeadInput(call, 2, "v", v_shape(), dtype);
  CheckMask(call, *this);
  CheckHeadOutput(call, 0, true, "y", y_shape(), dtype);
  call.Output("logsumexp", logsumexp_shape(), logsumexp_type());
  call.OutputIf(has_dropout, "draw", {2}, kInt64);
  call.KeepsPlaces();
}

void AttentionBackwardSpec::CheckCall(CallChecker& call) const {
  CheckGeometry(*this, call);
  call.Require(need_q || need_k || need_v || need_mask(), "no gradient is asked for");
  if (need_mask()) {
    const Shape scores = mask_shape();
    call.Require(has_mask && dmask.rank() == 4, "dmask ", dmask, " needs a mask and four axes");
    for (int axis = 0; axis < 4; ++axis)
      call.Require((axis > 0 && dmask[axis] == 1) || dmask[axis] == scores[axis], "dmask ", dmask,
                   " does not broadcast to ", scores);
  }
  CheckHeadInput(call, 0, "dy", y_shape(), dtype);
  CheckHeadInput(call, 1, "q", q_shape(), dtype);
  CheckHeadInput(call, 2, "k", k_shape(), dtype);
  CheckHeadInput(call, 3, "v", v_shape(), dtype);
  CheckMask(call, *this);
  CheckHeadInput(call, 5, "y", y_shape(), dtype);
  call.Input("logsumexp", logsumexp_shape(), logsumexp_type());
  call.InputIf(has_dropout, "draw", {2}, kInt64);
  CheckHeadOutput(call, 0, need_q, "dq", q_shape(), dtype);
  CheckHeadOutput(call, 1, need_k, "dk", k_shape(), dtype);
  CheckHeadOutput(call, 2, need_v, "dv", v_shape(), dtype);
  call.OutputIf(need_mask(), "dmask", dmask, logsumexp_type());
  call.KeepsPlaces();
}

}  // namespace singa
