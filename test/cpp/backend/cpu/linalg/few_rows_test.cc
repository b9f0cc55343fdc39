// Products of few rows and a matrix, of any size, on any number of threads.

#include "backend/cpu/linalg/few_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "model/dispatch/dispatch.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"
#include "support.h"

namespace singa {
namespace {

using test::Epsilon;
using test::ExpectNear;
using test::Random;
using test::RandomTensor;
using test::Values;

MatMulSpec Spec(int64_t m, int64_t n, int64_t k) {
  MatMulSpec spec;
  spec.kind = MatMulKind::kLinearForward;
  spec.m = m, spec.n = n, spec.k = k;
  return spec;
}

const Kernel& FewRows() { return *FindKernel<MatMulSpec>("few rows"); }

std::vector<double> Result(const MatMulSpec& spec, const std::vector<Tensor>& inputs) {
  const DevicePtr device = DefaultDevice();
  const std::vector<Candidate> candidates = FewRows().Candidates(spec);
  const std::vector<Tensor> outputs = {Tensor({spec.m, spec.n}, device)};
  Run(spec, device, candidates.at(0).make(), inputs, outputs);
  return Values(outputs[0]);
}

bool IsThere() { return !FewRows().Candidates(Spec(2, 8, 8)).empty(); }

TEST(FewRows, AreTheDefinitionOnAnyNumberOfThreads) {
  if (!IsThere()) GTEST_SKIP() << "short vectors";
  Random random(5);
  const int threads_before = NumThreads();
  for (int i = 0; i < 60; ++i) {
    MatMulSpec spec = Spec(random.Int(2, 64), random.Int(1, 150), random.Int(1, 70));
    if (i % 10 == 0) spec.n += 5000, spec.m = random.Int(2, 20);  // several tiles
    spec.relu = random.Coin();
    if (random.Coin()) spec.c_rows = 1, spec.c_cols = spec.n;
    std::vector<Tensor> inputs = {RandomTensor(random, {spec.m, spec.k}),
                                  RandomTensor(random, {spec.k, spec.n})};
    if (spec.c_rows > 0) inputs.push_back(RandomTensor(random, {spec.n}));
    const std::vector<double> a = Values(inputs[0]), b = Values(inputs[1]);
    std::vector<double> want, tolerance;
    const auto bias = inputs.size() > 2 ? Values(inputs[2]) : std::vector<double>(spec.n, 0.0);
    for (int64_t r = 0; r < spec.m; ++r) {
      for (int64_t c = 0; c < spec.n; ++c) {
        double sum = bias[c], size = std::abs(sum);
        for (int64_t d = 0; d < spec.k; ++d) {
          const double product = a[r * spec.k + d] * b[d * spec.n + c];
          sum += product, size += std::abs(product);
        }
        want.push_back(spec.relu ? std::max(sum, 0.0) : sum);
        tolerance.push_back(8 * Epsilon(kFloat32) * std::sqrt(spec.k + 1.0) * size);
      }
    }
    std::vector<double> one;
    for (const int threads : {1, 3}) {
      SetNumThreads(threads);
      spec.threads = threads;
      const std::vector<double> y = Result(spec, inputs);
      if (threads == 1) one = y;
      EXPECT_EQ(y, one) << "on " << threads << " threads";
    }
    ExpectNear(test::FromValues({spec.m, spec.n}, one), want, tolerance, spec.op());
  }
  SetNumThreads(threads_before);
}

// What is not finite reaches the results of its row or column, and no other.
TEST(FewRows, KeepNanAndInfinity) {
  if (!IsThere()) GTEST_SKIP() << "short vectors";
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = 1 / 0.0f;
  for (const int64_t m : {3, 20}) {
    MatMulSpec spec = Spec(m, 37, 19);
    spec.relu = true;
    std::vector<double> a(m * 19, 1.0), b(19 * 37, -1.0);
    a[19 + 18] = nan;      // row 1, the last term
    b[36] = nan;           // column 36
    b[18 * 37 + 5] = inf;  // column 5
    const std::vector<double> y =
        Result(spec, {test::FromValues({m, 19}, a), test::FromValues({19, 37}, b)});
    for (int64_t i = 0; i < m * 37; ++i) {
      const int64_t row = i / 37, column = i % 37;
      if (row == 1 || column == 36)
        EXPECT_TRUE(std::isnan(y[i])) << row << ", " << column;
      else
        EXPECT_EQ(y[i], column == 5 ? inf : 0) << row << ", " << column;
    }
  }
}

TEST(FewRows, LeaveTheRestToOthers) {
  if (!IsThere()) GTEST_SKIP() << "short vectors";
  const MatMulSpec spec = Spec(32, 4096, 512);
  EXPECT_TRUE(FewRows().Make(spec));
  for (const auto& change : std::vector<std::function<void(MatMulSpec&)>>{
           [](MatMulSpec& s) { s.m = 1; }, [](MatMulSpec& s) { s.m = 65; },
           [](MatMulSpec& s) { s.n = 4100; }, [](MatMulSpec& s) { s.k = 256; },
           [](MatMulSpec& s) { s.alpha = 2; }, [](MatMulSpec& s) { s.dtype = kFloat64; },
           [](MatMulSpec& s) { s.trans_a = true; }, [](MatMulSpec& s) { s.trans_b = true; },
           [](MatMulSpec& s) { s.c_rows = 32, s.c_cols = 4096; },
           [](MatMulSpec& s) { s.c_rows = 1, s.c_cols = 4096, s.beta = 2; },
           [](MatMulSpec& s) { s.a_batch = s.b_batch = {2}; }}) {
    MatMulSpec other = spec;
    change(other);
    EXPECT_FALSE(FewRows().Make(other));
  }
  // A matrix that no cache holds is read once, however its rows lie.
  EXPECT_TRUE(cpu::FewRowsPay(Spec(8, 1000, 9000)));
  EXPECT_FALSE(cpu::FewRowsPay(Spec(8, 1000, 4000)));
  EXPECT_FALSE(cpu::FewRowsPay(Spec(9, 1000, 9000)));
}

}  // namespace
}  // namespace singa
