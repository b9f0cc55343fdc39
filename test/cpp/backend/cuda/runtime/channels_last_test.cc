#include "backend/cuda/runtime/channels_last.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace singa::cudnn {
namespace {

TEST(ChannelsLast, IsPlainWhereTheOrderIsTheSame) {
  EXPECT_NE(ChannelsLastOf({2, 3, 4, 5}, kFloat32), nullptr);
  EXPECT_NE(ChannelsLastOf({8, 3, 3, 1}, kFloat32), nullptr);
  EXPECT_EQ(ChannelsLastOf({2, 1, 4, 5}, kFloat32), nullptr);  // one channel; depthwise filters
  EXPECT_EQ(ChannelsLastOf({2, 3, 1, 1}, kFloat32), nullptr);
  EXPECT_NE(ChannelsLastOf({2, 3, 4}, kFloat32), nullptr);
  EXPECT_NE(ChannelsLastOf({2, 3, 1, 4, 1}, kFloat32), nullptr);
  EXPECT_EQ(ChannelsLastOf({2, 3}, kFloat32), nullptr);
}

TEST(ChannelsLast, LayoutsAreEqualWhereTheyMeanTheSame) {
  const LayoutPtr layout = ChannelsLastOf({2, 3, 4, 5}, kFloat32);
  EXPECT_TRUE(SameLayout(layout, ChannelsLastOf({2, 3, 4, 5}, kFloat32)));
  EXPECT_EQ(layout->hash(), ChannelsLastOf({2, 3, 4, 5}, kFloat32)->hash());
  EXPECT_FALSE(SameLayout(layout, ChannelsLastOf({2, 3, 5, 4}, kFloat32)));
  EXPECT_FALSE(SameLayout(layout, ChannelsLastOf({2, 3, 4, 5}, kBFloat16)));
  EXPECT_FALSE(SameLayout(layout, nullptr));
  EXPECT_EQ(layout->bytes(), 2u * 3 * 4 * 5 * 4);
  EXPECT_EQ(LayoutName(layout), "nhwc");
}

TEST(ChannelsLast, PacksByItsStridesAndBack) {
  const Shape shape = {2, 3, 2, 5};
  std::vector<int16_t> plain(60), packed(60), back(60);
  std::iota(plain.begin(), plain.end(), int16_t{0});
  const LayoutPtr layout = ChannelsLastOf(shape, kBFloat16);
  layout->Pack(plain.data(), packed.data());
  const auto from = ImageStrides(shape, false), to = ImageStrides(shape, true);
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t w = 0; w < 5; ++w)
          EXPECT_EQ(
              packed[static_cast<size_t>(n * to[0] + c * to[1] + h * to[2] + w * to[3])],
              plain[static_cast<size_t>(n * from[0] + c * from[1] + h * from[2] + w * from[3])]);
  layout->Unpack(packed.data(), back.data());
  EXPECT_EQ(back, plain);
}

}  // namespace
}  // namespace singa::cudnn
