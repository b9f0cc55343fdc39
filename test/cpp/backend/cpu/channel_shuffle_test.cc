// Channel shuffles in the layouts of our kernels, beside those of row-major images.

#include "backend/cpu/lane_layouts.h"
#include "singa/operation/indexing.h"

namespace singa::test {
namespace {

void Check(const Tensor& plain, int64_t groups, Tag tag) {
  SCOPED_TRACE(std::to_string(groups) + " groups, layout " + std::to_string(static_cast<int>(tag)));
  const Tensor x = In(plain, tag);
  const uint64_t reorders = Reorders();
  const Tensor y = ChannelShuffle(x, groups);
  EXPECT_EQ(Reorders(), reorders);
  ExpectIn(y, tag, "y");
  ExpectEqual(y, ChannelShuffle(plain, groups), "y");
}

TEST(ChannelShuffleInLayouts, IsThatOfRowMajorImages) {
  Random random(43);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const int64_t groups = random.Int(1, 6), length = random.Int(1, 12);
    Shape shape = random.Dims(static_cast<int>(random.Int(3, 5)), 1, 6);
    shape[1] = groups * length;
    const DType dtype = random.Coin() ? kFloat32 : kBFloat16;
    const Tensor plain = RandomTensor(random, shape).AsType(dtype);
    for (Tag tag : kTags) Check(plain, groups, tag);
  }
}

TEST(ChannelShuffleInLayouts, HalvesOfManyPixels) {  // more than one thread's share
  Random random(44);
  for (int64_t half : {1, 8, 58, 116}) {
    const Tensor plain = RandomTensor(random, {3, 2 * half, 29, 31});
    for (Tag tag : kTags) {
      Check(plain, 2, tag);
      Check(plain, half, tag);
    }
  }
}

}  // namespace
}  // namespace singa::test
