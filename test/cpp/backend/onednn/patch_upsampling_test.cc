// Where patches are chosen. ConvTransposeTest compares their results with the definition.

#include "backend/cpu/lane_layouts.h"
#include "backend/onednn/engine.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/spec.h"
#include "singa/operation/conv.h"

namespace singa::test {
namespace {

bool IsPatches(const ConvTransposeHandle& handle) {
  ConvTransposeSpec spec;
  spec.geometry = handle.recorder;
  return FindPlan(*DefaultDevice(), spec)->implementation() == std::string("patch upsampling");
}

TEST(PatchUpsampling, IsForStridesThatAreTheKernel) {
  const Tensor x({2, 32, 7, 9});
  EXPECT_TRUE(IsPatches(ConvTransposeHandle(x, {2, 2}, {2, 2}, {0, 0}, {0, 0}, 32, 16, true)));
  EXPECT_TRUE(IsPatches(ConvTransposeHandle(x, {3, 2}, {3, 2}, {0, 0}, {0, 0}, 32, 64, false)));
  EXPECT_FALSE(IsPatches(ConvTransposeHandle(x, {3, 3}, {2, 2}, {0, 0}, {0, 0}, 32, 16, true)));
  EXPECT_FALSE(IsPatches(ConvTransposeHandle(x, {2, 2}, {2, 2}, {1, 1}, {0, 0}, 32, 16, true)));
  EXPECT_FALSE(IsPatches(ConvTransposeHandle(x, {2, 2}, {2, 2}, {0, 0}, {1, 0}, 32, 16, true)));
  EXPECT_FALSE(IsPatches(ConvTransposeHandle(x, {2, 2}, {2, 2}, {0, 0}, {0, 0}, 32, 16, true, 2)));
  EXPECT_FALSE(IsPatches(ConvTransposeHandle(x, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 32, 16, true)));
}

/// Images stay in their layout from one pass to the next, and no filter is reordered.
TEST(PatchUpsampling, FollowsTheLayout) {
  Random random(5);
  std::vector<LaneTag> tags{LaneTag::kNhwc};
  // Without AVX2 the gradients take another layout.
  if (AllowedInstructionSet() >= InstructionSet::kAvx2)
    tags.push_back(onednn::BlockedChannels() == 16 ? LaneTag::kNChw16c : LaneTag::kNChw8c);
  for (const LaneTag tag : tags) {
    const Tensor x = In(RandomTensor(random, {2, 64, 7, 8}), tag);
    const Tensor w = RandomTensor(random, {64, 32, 2, 2}), b = RandomTensor(random, {32});
    const ConvTransposeHandle handle(x, {2, 2}, {2, 2}, {0, 0}, {0, 0}, 64, 32, true);
    const Tensor y = ConvTransposeForward(x, w, b, handle);
    if (!y.layout()) continue;
    const uint64_t reorders = Reorders();
    const auto gradients = ConvTransposeBackward(y, x, w, handle, true, true, true);
    EXPECT_EQ(Reorders(), reorders);
    ExpectIn(gradients[0], tag, "dx");
    EXPECT_EQ(gradients[1].layout(), nullptr);
  }
}

}  // namespace
}  // namespace singa::test
