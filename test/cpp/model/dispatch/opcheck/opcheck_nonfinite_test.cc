// OPCHECK on results that are infinite or NaN.

#include "model/dispatch/opcheck/opcheck.h"
#include "support.h"

namespace singa::test {
namespace {

Tensor Of(const Vector& values) {
  return FromValues({static_cast<int64_t>(values.size())}, values);
}

/// True if OPCHECK raises. An empty `bound` means that the operation is not a sum of products.
bool Differ(const Vector& chosen, const Vector& reference, const Vector& bound = {}) {
  const OpcheckScope scope({.ops = {}, .replay_directory = testing::TempDir()});
  opcheck::Call call;
  call.op = "Test";
  call.inputs = call.outputs = {Of(chosen)};
  call.input_places = call.output_places = {opcheck::Placement{}};
  call.aliases = {-1};
  try {
    const Tensor ours = Of(chosen);
    opcheck::Expected expected{.results = {Of(reference)}, .bound = {}};
    if (!bound.empty()) expected.bound = {Of(bound)};
    opcheck::Report(call, {&ours, 1}, opcheck::FindDifference({&ours, 1}, expected));
  } catch (const OpcheckMismatch&) {
    return true;
  }
  return false;
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
}  // namespace singa::test
