// Where groups are joined. ConvTest compares their results with the definition.

#include "backend/cpu/lane_layouts.h"
#include "backend/onednn/engine.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/spec.h"
#include "singa/operation/conv.h"

namespace singa::test {
namespace {

std::string Implementation(int64_t groups, int64_t in, int64_t out, bool plain = false) {
  ConvSpec spec;
  spec.plain = plain;
  spec.geometry = ConvRecorder("Conv", {2, groups * in, 9, 9}, {3, 3}, {1, 1}, {1, 1}, groups * out,
                               false, {1, 1}, groups);
  return FindPlan(*DefaultDevice(), spec)->implementation();
}

TEST(JoinedGroups, AreThoseThatFillVectorsTogether) {
  backend::EnsureRegistered();
  if (onednn::EffectiveInstructionSet() < InstructionSet::kAvx512)
    GTEST_SKIP() << "vectors of other lengths";
  EXPECT_EQ(Implementation(32, 8, 16), "joined groups");
  EXPECT_EQ(Implementation(8, 2, 4), "joined groups");
  EXPECT_EQ(Implementation(2, 16, 8), "joined groups");
  EXPECT_NE(Implementation(2, 4, 4), "joined groups");
  EXPECT_NE(Implementation(32, 8, 16, true), "joined groups");
  EXPECT_EQ(Implementation(32, 4, 4), "depthwise");
  EXPECT_EQ(Implementation(32, 8, 8), "depthwise");
  EXPECT_NE(Implementation(4, 16, 16), "joined groups");
  EXPECT_NE(Implementation(1, 4, 4), "joined groups");
}

/// Eight of them fill a vector of AVX2.
TEST(JoinedGroups, AreNotThoseOfOneChannel) {
  backend::EnsureRegistered();
  EXPECT_NE(Implementation(32, 1, 1), "joined groups");
}

/// Images stay in their layout from one pass to the next, and the filter is not reordered.
TEST(JoinedGroups, FollowTheLayout) {
  backend::EnsureRegistered();
  if (onednn::EffectiveInstructionSet() < InstructionSet::kAvx512)
    GTEST_SKIP() << "vectors of other lengths";
  Random random(5);
  for (const LaneTag tag : {LaneTag::kNhwc, LaneTag::kNChw16c}) {
    const Tensor x = In(RandomTensor(random, {2, 128, 14, 14}), tag);
    const Tensor w = RandomTensor(random, {256, 8, 3, 3});
    const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 128, 256, false, 16);
    const uint64_t reorders = Reorders();
    const Tensor y = ConvForward(x, w, {}, handle);
    const auto gradients = ConvBackward(y, x, w, handle, true, true, false);
    EXPECT_EQ(Reorders(), reorders);
    ExpectIn(y, tag, "y");
    ExpectIn(gradients[0], tag, "dx");
    EXPECT_EQ(gradients[1].layout(), nullptr);
  }
}

TEST(JoinedGroups, StrictModeKeepsInfinityInItsGroup) {
  Random random(6);
  Vector values = Values(RandomTensor(random, {1, 128, 6, 6}));
  values[0] = kInf;
  const Tensor x = FromValues({1, 128, 6, 6}, values);
  const Tensor w = RandomTensor(random, {256, 8, 3, 3});
  const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 128, 256, false, 16);
  const StrictScope strict(true);
  const Vector y = Values(ConvForward(x, w, {}, handle));
  const size_t group = 16 * 6 * 6;
  EXPECT_TRUE(std::isinf(y[0]));
  for (size_t i = group; i < y.size(); ++i) ASSERT_TRUE(std::isfinite(y[i])) << i;
}

}  // namespace
}  // namespace singa::test
