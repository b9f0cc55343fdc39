// Products in which one side is a vector, of any size and orientation, on any number of threads.

#include <algorithm>

#include "backend/cpu/linalg/gemv.h"
#include "model/dispatch/dispatch.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::test {
namespace {

Tensor Result(const MatMulSpec& spec, const std::vector<Tensor>& inputs) {
  const DevicePtr device = DefaultDevice();
  const PlanPtr plan = FindPlan(*device, spec);
  EXPECT_STREQ(plan->implementation(), "cpu") << plan->Describe();
  const std::vector<Tensor> outputs = {Tensor({spec.m, spec.n}, device, spec.dtype)};
  Run(spec, device, plan, inputs, outputs);
  return outputs[0];
}

/// Compares with the definition, and results on one thread with those on three.
void Check(Random& random, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, bool bias,
           bool relu) {
  MatMulSpec spec;
  spec.kind = MatMulKind::kLinearForward;
  spec.m = m, spec.n = n, spec.k = k;
  spec.trans_a = trans_a, spec.trans_b = trans_b;
  spec.relu = relu;
  if (bias) spec.c_rows = 1, spec.c_cols = n;
  ASSERT_TRUE(cpu::IsProductOfVectors(spec));
  std::vector<Tensor> inputs = {RandomTensor(random, trans_a ? Shape{k, m} : Shape{m, k}),
                                RandomTensor(random, trans_b ? Shape{n, k} : Shape{k, n})};
  if (bias) inputs.push_back(RandomTensor(random, {n}));
  const Vector a = Values(inputs[0]), b = Values(inputs[1]);
  const Vector c = bias ? Values(inputs[2]) : Vector(n, 0.0);
  Vector want(m * n), tolerance(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = c[j], size = std::abs(c[j]);
      for (int64_t l = 0; l < k; ++l) {
        const double product =
            a[trans_a ? l * m + i : i * k + l] * b[trans_b ? j * k + l : l * n + j];
        sum += product;
        size += std::abs(product);
      }
      want[i * n + j] = relu ? std::max(sum, 0.0) : sum;
      tolerance[i * n + j] = 8 * Epsilon(kFloat32) * std::sqrt(static_cast<double>(k + 1)) * size;
    }
  Vector one;
  for (const int threads : {1, 3}) {
    const ThreadCount scope(threads);
    spec.threads = threads;
    const Tensor y = Result(spec, inputs);
    ExpectNear(y, want, tolerance, spec.op());
    if (threads == 1) one = Values(y);
    EXPECT_EQ(Values(y), one) << "on " << threads << " threads";
  }
}

TEST(ProductOfVectors, IsTheDefinition) {
  Random random(3);
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const bool bias : {false, true})
        for (const bool relu : {false, true}) {
          Check(random, 1, 33, 70, trans_a, trans_b, bias, relu);
          Check(random, 1, 500, 801, trans_a, trans_b, bias, relu);  // several pieces
          Check(random, 37, 65, 1, trans_a, trans_b, bias, relu);
          Check(random, 301, 403, 1, trans_a, trans_b, bias, relu);
          Check(random, 1, 1, 5, trans_a, trans_b, bias, relu);
          Check(random, 1, 1, 1, trans_a, trans_b, bias, relu);
          if (bias) continue;
          Check(random, 33, 1, 70, trans_a, trans_b, bias, relu);
          Check(random, 501, 1, 803, trans_a, trans_b, bias, relu);
        }
}

TEST(ProductOfVectors, RelusNanIsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  MatMulSpec spec;
  spec.kind = MatMulKind::kLinearForward;
  spec.m = 1, spec.n = 3, spec.k = 2;
  spec.relu = true;
  const Tensor y =
      Result(spec, {FromValues({1, 2}, {1, 1}), FromValues({2, 3}, {1, -1, nan, 1, -1, 1})});
  const Vector values = Values(y);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[1], 0);
  EXPECT_TRUE(std::isnan(values[2]));
}

TEST(ProductOfVectors, LeavesTheRestToOthers) {
  MatMulSpec spec;
  spec.m = 1, spec.n = 8, spec.k = 8;
  EXPECT_TRUE(cpu::IsProductOfVectors(spec));
  for (const auto& change : std::vector<std::function<void(MatMulSpec&)>>{
           [](MatMulSpec& s) { s.m = 2; }, [](MatMulSpec& s) { s.k = 0; },
           [](MatMulSpec& s) { s.alpha = 2; }, [](MatMulSpec& s) { s.dtype = kFloat64; },
           [](MatMulSpec& s) { s.c_rows = 1, s.c_cols = 1; },
           [](MatMulSpec& s) { s.c_rows = 1, s.c_cols = 8, s.beta = 2; },
           [](MatMulSpec& s) { s.a_batch = s.b_batch = {2}; }}) {
    MatMulSpec other = spec;
    change(other);
    EXPECT_FALSE(cpu::IsProductOfVectors(other));
  }
}

}  // namespace
}  // namespace singa::test
