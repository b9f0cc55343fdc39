// A program does not see that its results are checked.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/dispatch/measure.h"
#include "model/operation/layout/reorder_spec.h"
#include "model/operation/softmax/spec.h"
#include "singa/core/stats.h"
#include "singa/dispatch/spot_check.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/layout.h"
#include "singa/operation/lrn.h"
#include "singa/operation/softmax.h"
#include "support.h"
#include "wrong_kernel.h"

namespace singa::test {
namespace {

/// What is seen of calls: executions, reorders, and look-ups of plans.
std::vector<std::string> Seen(const std::function<void()>& calls) {
  ClearPlanCache();  // the next runs of each plan are its first ones
  TakeProfile();
  TakeReorders();
  const ReorderStats before = GetReorderStats();
  SetProfiling(true);
  RecordReorders(true);
  calls();
  SetProfiling(false);
  RecordReorders(false);
  const ReorderStats after = GetReorderStats();
  std::vector<std::string> seen{std::to_string(after.count - before.count) + " reorders of " +
                                std::to_string(after.bytes - before.bytes) + " bytes"};
  for (const ProfileRecord& record : TakeProfile())
    seen.push_back(record.op + " " + record.implementation + " " + record.shapes);
  for (const ReorderRecord& record : TakeReorders())
    seen.push_back(record.op + ": " + record.from + " to " + record.to);
  for (const PlanCacheOpStats& op : GetPlanCacheStats().by_op)
    seen.push_back(op.op + ": " + std::to_string(op.hits) + " hits, " + std::to_string(op.misses) +
                   " misses");
  return seen;
}

/// Operands are overwritten (running statistics), lie in blocks, and are kept in a form that is
/// read from a row-major copy. Runs 1, 2 and 4 of each plan are checked.
void RunFourTimes() {
  Random random(1);
  const Tensor x = RandomTensor(random, {2, 32, 3, 4}, kFloat32, 0.5, 1);
  const Tensor blocked = ToBlocked(x);
  blocked.Plain();
  const Tensor mean = RandomTensor(random, {32}), variance = RandomTensor(random, {32});
  const BatchNormHandle handle(0.1, x);
  for (int run = 0; run < 4; ++run) {
    BatchNormForwardTraining(handle, x, {}, {}, mean, variance);
    const std::vector<Tensor> y = LrnForward(blocked, 5, 1e-4, 0.75, 1);
    LrnBackward(blocked, blocked, y[0], y[1], 5, 1e-4, 0.75, 1);
    Softmax(x, 1);
  }
}

TEST(SpotChecks, AreSeenInNoStatistics) {
  SetSpotChecks(false);
  const std::vector<std::string> without = Seen(RunFourTimes);
  SetSpotChecks(true);
  EXPECT_EQ(Seen(RunFourTimes), without);
  EXPECT_GT(without.size(), 16u);
  EXPECT_FALSE(IsProfiling());
}

TEST(SpotChecks, OpcheckIsSeenInNoStatistics) {
  const WrongKernelScope<SoftmaxSpec> right(Wrong::kNever);  // in every build
  SetSpotChecks(false);
  const std::vector<std::string> without = Seen(RunFourTimes);
  SetSpotChecks(true);
  ResetOpcheckStats();
  OpcheckOptions options = GetOpcheck();
  options.every = 1;
  const OpcheckScope opcheck(options);
  EXPECT_EQ(Seen(RunFourTimes), without);
  const std::vector<OpcheckOpStats> stats = GetOpcheckStats();
  EXPECT_TRUE(std::any_of(stats.begin(), stats.end(),
                          [](const OpcheckOpStats& op) { return op.checked == 4; }));
  ResetOpcheckStats();
}

/// A plan that takes its input in a layout, and does nothing.
class Idle final : public Plan {
 public:
  explicit Idle(LayoutPtr layout) : Plan("idle"), layout_(std::move(layout)) {}
  void Run(const Execution&) const override {}
  LayoutPtr input_layout(size_t) const override { return layout_; }

 private:
  LayoutPtr layout_;
};

TEST(SpotChecks, ReordersThatAreMeasuredAreNotChecked) {
  const MeasuredTensor x{.name = "x", .shape = {2, 20, 3, 4}};
  const LayoutPtr layout = ToBlocked(Full(x.shape, 1)).layout();
  if (!layout) GTEST_SKIP() << "this build has no blocked layouts";
  ClearPlanCache();
  const DevicePtr device = DefaultDevice();
  Stopwatch(device, {.inputs = {x}, .outputs = {}}).Time(Idle(layout));
  const PlanPtr reorder = FindPlan(*device, ReorderSpec{nullptr, layout, x.shape, kFloat32},
                                   {Preference::kFastest, SIZE_MAX});
  EXPECT_EQ(reorder->watch().runs.load(), 0u);
}

TEST(SpotChecks, WhatReplacesAWrongResultIsSeenInNoStatistics) {
  const WrongKernelScope<SoftmaxSpec> wrong(Wrong::kLastCorner);
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("spot_check_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  OpcheckOptions options = GetOpcheck();
  options.replay_directory = folder;
  const OpcheckScope opcheck(options);
  Random random(2);
  const Tensor x = RandomTensor(random, {3, 7});
  const auto call = [&] { Softmax(x, 1); };
  SetSpotChecks(false);
  const std::vector<std::string> without = Seen(call);
  SetSpotChecks(true);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Seen(call), without);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("[Softmax] wrong "), std::string::npos);
  ASSERT_EQ(GetRefusedPlans().size(), 1u);
  ForgetRefusedPlans();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace singa::test
