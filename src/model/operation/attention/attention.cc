#include "singa/operation/attention.h"

#include <cmath>

#include "model/dispatch/dispatch.h"
#include "model/formula/attention.h"
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
  CallOptions options{.scalars = ScalarsOf(scale, dropout, causal, first_query)};
  if (spec.has_dropout)
    q.device()->TakeRandom(formula::AttentionDropoutWords(
                               static_cast<uint64_t>(spec.logsumexp_shape().Count()), spec.keys),
                           &options.scalars);
  return CallForAll(spec, {q, k, v, Broadcast(mask, spec)}, options);
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
  if (need_mask) {
    CheckGiven(spec.op(), "mask", mask);
    CheckFloat(spec.op(), "mask", mask);  // a bool mask has no gradient
    spec.dmask = FourAxes(mask.shape());
  }
  std::vector<Tensor> gradients =
      CallForAll(spec, {dy, q, k, v, Broadcast(mask, spec), y, logsumexp, draw},
                 {.zeros = !need_q && !need_k && !need_v && !need_mask,
                  .scalars = ScalarsOf(scale, dropout, causal, first_query)});
  if (need_mask) gradients[3] = gradients[3].Reshape(mask.shape()).AsType(mask.data_type());
  return gradients;
}

namespace {

/// The fields of both directions, and the scalars. `mask`: its number among the inputs.
void CheckGeometry(const AttentionGeometry& g, size_t mask, const CallChecker& call) {
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
  if (g.has_mask) CheckMaskType(call.op(), call.TypeOfInput(mask));
  call.Require(g.has_dropout == (v[1] > 0), "has_dropout does not go with dropout ", v[1]);
}

}  // namespace

void AttentionForwardSpec::CheckFields(const CallChecker& call) const {
  CheckGeometry(*this, 3, call);
}

void AttentionBackwardSpec::CheckFields(const CallChecker& call) const {
  CheckGeometry(*this, 4, call);
  call.Require(need_q || need_k || need_v || need_mask(), "no gradient is asked for");
  if (need_mask()) {
    const Shape scores = mask_shape();
    call.Require(has_mask && dmask.rank() == 4, "dmask ", dmask, " needs a mask and four axes");
    for (int axis = 0; axis < 4; ++axis)
      call.Require((axis > 0 && dmask[axis] == 1) || dmask[axis] == scores[axis], "dmask ", dmask,
                   " does not broadcast to ", scores);
  }
}

}  // namespace singa
