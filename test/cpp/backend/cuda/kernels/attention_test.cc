// Attention on the emulator.

#include "model/operation/attention/spec.h"

#include <algorithm>

#include "backend/cuda/kernels/kernels.h"

namespace singa::test {
namespace {

struct Options {
  double dropout = 0;
  int64_t first_query = 0;
  bool need_q = true, need_k = true, need_v = true;
};

/// In memory (B, N, H, D).
Tensor Turned(const Tensor& t) {
  return t.Transpose({0, 2, 1, 3}).Contiguous().Transpose({0, 2, 1, 3});
}

void Check(Random& random, AttentionGeometry g, const Tensor& mask = {}, const Options& o = {}) {
  g.has_mask = !mask.empty();
  g.mask_batch = mask.rank() == 4 ? mask.shape(0) : 1;
  g.has_dropout = o.dropout > 0;
  const std::string what = g.q_shape().ToString() + " " + g.k_shape().ToString();
  const auto any = [&](const Shape& shape) {
    const Tensor t = RandomTensor(random, shape, g.dtype);
    return random.Coin() ? t : Turned(t);
  };
  const auto result = [&](bool wanted, const Shape& shape) {
    if (!wanted) return Tensor();
    const Tensor t = Result(shape, g.dtype);
    return random.Coin() ? t : Turned(t);
  };
  const Tensor q = any(g.q_shape()), k = any(g.k_shape()), v = any(g.v_shape());
  const Tensor dy = any(g.y_shape());
  const Tensor added = mask.empty() ? mask : mask.Broadcast(g.mask_shape());
  Scalars scalars;
  scalars.v = {0.7, o.dropout, static_cast<double>(o.first_query)};
  scalars.seed = 0x1234567890abcdefu;
  scalars.offset = 5;
  const double step = Step(g.dtype);
  const auto forward = CompareWithReference(
      AttentionForwardSpec{g}, {q, k, v, added},
      {result(true, g.y_shape()), Result(g.logsumexp_shape(), g.logsumexp_type()),
       g.has_dropout ? Result({2}, kInt64) : Tensor()},
      scalars, Tolerance{256 * step, 64 * step}, what);
  scalars.seed = scalars.offset = 0;  // backward reads them from forward's result
  Shape dmask;
  if (!mask.empty() && mask.data_type() != kBool) {
    dmask = mask.shape();
    while (dmask.rank() < 4) dmask.insert(0, 1);
  }
  CompareWithReference(
      AttentionBackwardSpec{g, o.need_q, o.need_k, o.need_v, dmask},
      {dy, q, k, v, added, forward[0], forward[1], forward[2]},
      {result(o.need_q, g.q_shape()), result(o.need_k, g.k_shape()), result(o.need_v, g.v_shape()),
       dmask.empty() ? Tensor() : Result(dmask, g.logsumexp_type())},
      scalars, Tolerance{1024 * step, 1024 * step}, what);
}

TEST(CudaAttention, AnyGeometry) {
  Random random(7);
  for (const DType dtype : kFloats) {
    AttentionGeometry g{.batch = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .queries = 5,
                        .keys = 40,
                        .dim = 9,
                        .value_dim = 70,
                        .dtype = dtype};
    Check(random, g);
    g.causal = true;
    Check(random, g, {}, {.first_query = 30});
    g = {.batch = 1,
         .heads = 1,
         .kv_heads = 1,
         .queries = 35,
         .keys = 33,
         .dim = 66,
         .value_dim = 3,
         .dtype = dtype,
         .causal = true};
    Check(random, g);
    Check(random, g, {}, {.dropout = 0.3, .first_query = -3});
  }
}

TEST(CudaAttention, Masks) {
  Random random(8);
  const AttentionGeometry g{
      .batch = 2, .heads = 2, .kv_heads = 2, .queries = 6, .keys = 37, .dim = 8, .value_dim = 8};
  Check(random, g, RandomTensor(random, {2, 1, 1, 37}, kFloat64));
  Check(random, g, RandomTensor(random, {6, 37}, kBFloat16), {.dropout = 0.5});
  Vector used = Values(RandomTensor(random, {2, 2, 6, 37}));
  for (double& value : used) value = value > -0.4;
  std::fill_n(used.begin(), 37, 0.0);  // a query without keys
  Check(random, g, FromValues({2, 2, 6, 37}, used).AsType(kBool));
}

TEST(CudaAttention, TheGradientOfTheMaskSumsWhatItBroadcasts) {
  Random random(11);
  const AttentionGeometry g{
      .batch = 2, .heads = 4, .kv_heads = 2, .queries = 35, .keys = 33, .dim = 3, .value_dim = 4};
  for (int which = 0; which < 16; ++which) {
    Shape shape{2, 4, 35, 33};
    for (int axis = 0; axis < 4; ++axis)
      if (which >> axis & 1) shape[axis] = 1;
    AttentionGeometry any = g;
    any.dtype = kFloats[which % std::size(kFloats)];
    any.causal = which % 3 == 0;
    Check(random, any, RandomTensor(random, shape),
          {.need_q = which % 2 == 0, .need_k = false, .need_v = false});
  }
}

TEST(CudaAttention, MasksRepeatAlongTheBatch) {
  Random random(12);
  const AttentionGeometry g{
      .batch = 6, .heads = 2, .kv_heads = 1, .queries = 9, .keys = 9, .dim = 3, .value_dim = 4};
  Check(random, g, RandomTensor(random, {2, 2, 9, 9}));
  Check(random, g, RandomTensor(random, {3, 1, 1, 9}));
}

TEST(CudaAttention, OnlyWhatIsNeeded) {
  Random random(9);
  const AttentionGeometry g{
      .batch = 1, .heads = 2, .kv_heads = 1, .queries = 7, .keys = 9, .dim = 5, .value_dim = 70};
  Check(random, g, {}, {.need_k = false, .need_v = false});
  Check(random, g, {}, {.need_q = false, .need_v = false});
  Check(random, g, {}, {.need_q = false, .need_k = false});
}

TEST(CudaAttention, Empty) {
  Random random(10);
  const AttentionGeometry whole{
      .batch = 2, .heads = 2, .kv_heads = 2, .queries = 3, .keys = 4, .dim = 5, .value_dim = 6};
  for (int64_t AttentionGeometry::*length :
       {&AttentionGeometry::batch, &AttentionGeometry::queries, &AttentionGeometry::keys,
        &AttentionGeometry::dim, &AttentionGeometry::value_dim}) {
    AttentionGeometry g = whole;
    g.*length = 0;
    Check(random, g);
    Check(random, g, {}, {.dropout = 0.5});
    Check(random, g, RandomTensor(random, {1, 1, 1, 1}));
    Check(random, g, RandomTensor(random, {1, g.heads, g.queries, g.keys}));
  }
}

}  // namespace
}  // namespace singa::test
