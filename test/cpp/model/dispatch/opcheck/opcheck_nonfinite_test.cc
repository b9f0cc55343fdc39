// OPCHECK on results that are infinite or NaN.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/dispatch/opcheck/opcheck.h"

namespace singa {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor Of(const std::vector<float>& values) {
  Tensor t({static_cast<int64_t>(values.size())}, nullptr, kFloat32);
  t.CopyFromHost(values.data(), values.size() * sizeof(float));
  return t;
}

/// True if OPCHECK raises. An empty `bound` means that the operation is not a sum of products.
bool Differ(const std::vector<float>& chosen, const std::vector<float>& reference,
            const std::vector<float>& bound = {}) {
  const OpcheckOptions before = GetOpcheck();
  OpcheckOptions options;
  options.raise = true;
  options.replay_directory = testing::TempDir();
  SetOpcheck(options);
  opcheck::Call call;
  call.op = "Test";
  call.inputs = call.outputs = {Of(chosen)};
  call.input_places = call.output_places = {opcheck::Placement{}};
  call.aliases = {-1};
  bool differ = false;
  try {
    const Tensor ours = Of(chosen);
    opcheck::Expected expected{.results = {Of(reference)}, .bound = {}};
    if (!bound.empty()) expected.bound = {Of(bound)};
    opcheck::Report(call, {&ours, 1}, opcheck::FindDifference({&ours, 1}, expected));
  } catch (const OpcheckMismatch&) {
    differ = true;
  }
  SetOpcheck(before);
  return differ;
}

TEST(OpcheckNonfinite, TheSameIsTheSame) {
  EXPECT_FALSE(Differ({1, kNan, kInf, -kInf}, {1, kNan, kInf, -kInf}));
}

TEST(OpcheckNonfinite, ANanThatIsLostIsFound) {
  EXPECT_TRUE(Differ({1, 0}, {1, kNan}));
  EXPECT_TRUE(Differ({1, kInf}, {1, kNan}));
  EXPECT_TRUE(Differ({1, 0}, {1, kInf}));
  EXPECT_TRUE(Differ({1, 0}, {1, kNan}, {1, kNan}));
  EXPECT_TRUE(Differ({1, 0}, {1, kInf}, {1, kInf}));
}

TEST(OpcheckNonfinite, ANanFromNowhereIsFound) {
  EXPECT_TRUE(Differ({kNan, 1}, {1, 1}));
  EXPECT_TRUE(Differ({kNan, 1}, {1, 1}, {1, 1}));
  EXPECT_TRUE(Differ({kInf, 1}, {-kInf, 1}));
}

TEST(OpcheckNonfinite, SumsMaySpreadWhatIsNoNumber) {
  EXPECT_FALSE(Differ({1, kNan, kNan}, {1, 2, kNan}, {1, 2, kNan}));
  EXPECT_FALSE(Differ({1, kNan, 2}, {1, kInf, 2}, {1, kInf, 2}));
  EXPECT_FALSE(Differ({1, kInf, 2}, {1, kNan, 2}, {1, kNan, 2}));
  EXPECT_TRUE(Differ({1.5, kNan, kNan}, {1, 2, kNan}, {1, 2, kNan}));
}

}  // namespace
}  // namespace singa
