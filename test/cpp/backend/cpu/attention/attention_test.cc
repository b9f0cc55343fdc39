// Attention by tiles and of short sequences with vectors of both widths, and by pairs of bfloat16
// numbers, on any CPU, against `reference` in float64.

#include "backend/cpu/attention/attention.h"

#include <type_traits>

#include "model/dispatch/opcheck/difference.h"
#include "model/operation/attention/attention_case.h"
#include "singa/core/device.h"

namespace singa::test {
namespace {

class CpuAttention : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Lanes, CpuAttention, testing::Values(8, 16));

/// The same values in memory (B, N, H, D), as kernels get them from a projection of all heads.
Tensor Projected(const Tensor& t) {
  return t.Transpose({0, 2, 1, 3}).Contiguous().Transpose({0, 2, 1, 3});
}

/// A result in such memory.
Tensor Result(const Tensor& like, int64_t features) {
  const Shape& s = like.shape();
  return Full({s[0], s[2], s[1], features}, 77, nullptr, like.data_type()).Transpose({0, 2, 1, 3});
}

/// `make` makes a plan for a Spec. `check(spec, plan, inputs, outputs, scalars, want)` checks its
/// results; `want` are those of `reference`.
template <class Make, class Check>
void CheckPlans(const AttentionCase& c, const Make& make, const Check& check) {
  AttentionGeometry geometry{.batch = c.q.shape(0),
                             .heads = c.q.shape(1),
                             .kv_heads = c.k.shape(1),
                             .queries = c.q.shape(2),
                             .keys = c.k.shape(2),
                             .dim = c.q.shape(3),
                             .value_dim = c.v.shape(3),
                             .dtype = c.q.data_type(),
                             .has_mask = !c.mask.empty(),
                             .mask_batch = c.mask.rank() == 4 ? c.mask.shape(0) : 1,
                             .causal = c.causal};
  const Tensor mask = c.mask.empty() ? c.mask : c.mask.Broadcast(geometry.mask_shape());
  const Tensor q = Projected(c.q), k = Projected(c.k), v = Projected(c.v), dy = Projected(c.dy);
  Scalars scalars;
  scalars.v = {c.scale, 0, static_cast<double>(c.first_query)};
  const ReferenceAttention want(c);
  const auto run = [&](const auto& spec, const std::vector<Tensor>& inputs,
                       const std::vector<Tensor>& outputs) {
    const PlanPtr plan = make(spec);
    DefaultDevice()->Exec(spec.op(), plan, inputs, outputs, scalars);
    check(spec, *plan, inputs, outputs, scalars, want);
  };
  run(AttentionForwardSpec{geometry}, {q, k, v, mask},
      {Result(q, geometry.value_dim), Full(geometry.logsumexp_shape(), 77, nullptr, kFloat32),
       Tensor()});
  AttentionBackwardSpec backward{geometry};
  Tensor dmask;
  if (!c.mask.empty() && c.mask.data_type() != kBool) {
    backward.dmask = c.mask.shape();
    while (backward.dmask.rank() < 4) backward.dmask.insert(0, 1);
    dmask = Full(backward.dmask, 77, nullptr, kFloat32);
  }
  run(backward, {dy, q, k, v, mask, Projected(want.y()), want.logsumexp(), Tensor()},
      {Result(q, geometry.dim), Result(k, geometry.dim), Result(k, geometry.value_dim), dmask});
}

/// Expects results in float32, rounded once.
template <class Make>
void CheckRounded(const AttentionCase& c, const Make& make) {
  CheckPlans(c, make,
             [&](const auto& spec, const Plan&, const auto&, std::vector<Tensor> outputs,
                 const Scalars&, const ReferenceAttention& want) {
               if constexpr (std::is_same_v<decltype(spec), const AttentionForwardSpec&>) {
                 want.ExpectForward(outputs);
               } else {
                 if (!outputs[3].empty())
                   outputs[3] = outputs[3].Reshape(c.mask.shape()).AsType(c.mask.data_type());
                 want.ExpectBackward(outputs);
               }
             });
}

/// Expects OPCHECK to accept results whose factors are rounded.
void CheckPairs(const AttentionCase& c, const cpu::PairLoops& loops) {
  SCOPED_TRACE(c.ToString());
  CheckPlans(
      c, [&](const auto& spec) { return cpu::attention::MakePairPlan(spec, loops); },
      [&](const auto& spec, const Plan& plan, const std::vector<Tensor>& inputs,
          const std::vector<Tensor>& outputs, const Scalars& scalars,
          const ReferenceAttention& want) {
        constexpr bool kForward = std::is_same_v<decltype(spec), const AttentionForwardSpec&>;
        opcheck::Expected expected{kForward ? want.results() : want.gradients()};
        expected.bound = spec.Magnitudes(inputs, scalars);
        expected.sum_length = spec.sum_length();
        for (size_t i = 0; i < outputs.size(); ++i)
          if (!outputs[i].empty())
            expected.results[i] = expected.results[i].Reshape(outputs[i].shape());
        const auto difference =
            opcheck::FindDifference(outputs, expected, false, plan.factor_error());
        EXPECT_LE(difference.ratio, 1) << spec.op() << ": " << difference.text;
      });
}

void CheckCase(const AttentionCase& c, int64_t lanes) {
  SCOPED_TRACE(c.ToString());
  CheckRounded(c, [&](const auto& spec) { return cpu::attention::MakePlan(spec, lanes); });
  if (std::max(c.q.shape(2), c.k.shape(2)) <= cpu::attention::kWindow)
    CheckRounded(c, [&](const auto& spec) { return cpu::attention::MakeWindowPlan(spec, lanes); });
}

TEST_P(CpuAttention, IsThatOfReference) {
  Random random(17);
  for (int i = 0; i < 25 && !testing::Test::HasFailure(); ++i)
    CheckCase(AttentionCase::Any(random, random.Coin() ? kFloat32 : kBFloat16), GetParam());
}

TEST_P(CpuAttention, OverManyTilesAndParts) {
  Random random(18);
  for (const bool causal : {false, true}) {
    AttentionCase c = AttentionCase::Of(random, kFloat32, {1, 2, 1}, {70, 150}, {24, 9});
    c.causal = causal;
    c.first_query = 80;
    CheckCase(c, GetParam());
  }
}

TEST_P(CpuAttention, OverShortSequences) {
  Random random(19);
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const int64_t length : {1, 16, 49, 64})
      for (const Shape& mask : {Shape{}, Shape{2, 2, length, length}, Shape{1, 2, 1, length},
                                Shape{4, 1, length, 1}, Shape{length, length}}) {
        AttentionCase c = AttentionCase::Of(random, dtype, {4, 2, 1}, {length, length}, {20, 9});
        if (!mask.empty()) c.mask = RandomTensor(random, mask);
        c.causal = length == 16;
        CheckCase(c, GetParam());
      }
}

/// Runs with plain loops, and with those of the processor if it has some.
class PairAttention : public testing::TestWithParam<bool> {
 protected:
  static const cpu::PairLoops* Loops() {
    return GetParam() ? cpu::Avx512PairLoops() : &cpu::PlainPairLoops();
  }
};
INSTANTIATE_TEST_SUITE_P(Avx512, PairAttention, testing::Bool());

TEST_P(PairAttention, IsThatOfReference) {
  if (!Loops()) GTEST_SKIP() << "this CPU has no bfloat16 instructions";
  Random random(20);
  for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i)
    CheckPairs(AttentionCase::Any(random, kBFloat16), *Loops());
}

TEST_P(PairAttention, OverManyTilesAndParts) {
  if (!Loops()) GTEST_SKIP() << "this CPU has no bfloat16 instructions";
  Random random(21);
  for (const bool causal : {false, true}) {
    AttentionCase c = AttentionCase::Of(random, kBFloat16, {1, 2, 1}, {71, 197}, {64, 9});
    c.scale = 0.125;
    c.causal = causal;
    c.first_query = 80;
    CheckPairs(c, *Loops());
  }
}

/// An infinite weight of a query that is not there reaches no sum.
TEST_P(PairAttention, LeavesOutQueriesThatAreNotThere) {
  if (!Loops()) GTEST_SKIP() << "this CPU has no bfloat16 instructions";
  Random random(22);
  AttentionCase c = AttentionCase::Of(random, kBFloat16, {1, 1, 1}, {5, 70}, {8, 8});
  c.mask = Full({1, 70}, 1000, nullptr, kFloat32);
  CheckPairs(c, *Loops());
}

}  // namespace
}  // namespace singa::test
