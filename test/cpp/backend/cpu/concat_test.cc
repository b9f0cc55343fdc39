// Concatenation and splitting of images along their channels, in every supported layout.

#include <cstring>

#include "core/layout/channel_lanes.h"
#include "singa/core/stats.h"
#include "singa/operation/indexing.h"
#include "support.h"

namespace singa::test {
namespace {

/// Expects zeros in the padding channels of blocks.
void ExpectZeroPadding(const Tensor& t, LaneTag tag) {
  const Lanes g(t.shape(), tag);
  const auto bytes = static_cast<int64_t>(SizeOf(t.data_type()));
  const char* data = static_cast<const char*>(t.raw_data());
  const int64_t first = g.filled(g.blocks - 1);
  for (int64_t n = 0; n < g.images; ++n)
    for (int64_t pixel = 0; pixel < g.height * g.width; ++pixel) {
      const char* row =
          data + (n * g.image_step + (g.blocks - 1) * g.block_step + pixel * g.column_step) * bytes;
      for (int64_t i = first * bytes; i < g.lanes * bytes; ++i)
        ASSERT_EQ(row[i], 0) << "image " << n << ", pixel " << pixel;
    }
}

void Check(Random& random, const std::vector<int64_t>& channels, DType dtype, LaneTag tag) {
  const int64_t images = random.Int(1, 3), height = random.Int(1, 9), width = random.Int(1, 9);
  std::vector<Tensor> plain, opaque;
  for (int64_t c : channels) {
    plain.push_back(RandomTensor(random, {images, c, height, width}).AsType(dtype));
    opaque.push_back(plain.back().ToLayout(LaneLayout(plain.back().shape(), dtype, tag)));
  }
  const Tensor expected = Concat(plain, 1);
  ASSERT_FALSE(expected.is_blocked());
  // One input in another layout: it is reordered.
  if (opaque.size() > 1 && random.Coin()) opaque.back() = plain.back();
  const Tensor y = Concat(opaque, 1);
  ASSERT_TRUE(SameLayout(y.layout(), LaneLayout(y.shape(), dtype, tag))) << LayoutName(y.layout());
  EXPECT_EQ(Values(y), Values(expected));
  ExpectZeroPadding(y, tag);
  const std::vector<Tensor> pieces = Split(y, 1, channels);
  ASSERT_EQ(pieces.size(), channels.size());
  int64_t start = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(SameLayout(pieces[i].layout(), LaneLayout(pieces[i].shape(), dtype, tag)));
    EXPECT_EQ(Values(pieces[i]), Values(plain[i])) << "piece " << i;
    ExpectZeroPadding(pieces[i], tag);
    const std::vector<int64_t> begin = {start}, end = {start += channels[i]}, axis = {1}, one = {1};
    const Tensor slice = Slice(y, begin, end, axis);
    EXPECT_TRUE(SameLayout(slice.layout(), pieces[i].layout()) || pieces.size() == 1);
    EXPECT_EQ(Values(slice), Values(plain[i]));
    EXPECT_EQ(Values(SliceBackward(slice, y.shape(), begin, end, axis, one)),
              Values(SliceBackward(plain[i], y.shape(), begin, end, axis, one)));
  }
  EXPECT_TRUE(SameLayout(y.layout(), LaneLayout(y.shape(), dtype, tag)));
}

TEST(ConcatInLayouts, IsThatOfRowMajorImagesAndSplitIsItsReverse) {
  Random random(31);
  for (DType dtype : {kFloat32, kBFloat16}) {
    for (LaneTag tag : {LaneTag::kNhwc, LaneTag::kNChw8c, LaneTag::kNChw16c}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(tag)) + " " + DTypeName(dtype));
      Check(random, {64, 128, 32, 32}, dtype, tag);  // from googlenet
      Check(random, {24, 40, 48}, dtype, tag);       // half blocks of 16
      Check(random, {17, 3, 1, 30, 8}, dtype, tag);
      for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) {
        std::vector<int64_t> channels(static_cast<size_t>(random.Int(1, 5)));
        for (int64_t& c : channels) c = random.Int(17, 50);
        Check(random, channels, dtype, tag);
      }
    }
  }
}

/// Number of elements to reorder if the result has this layout.
int64_t Moved(const std::vector<Tensor>& xs, LaneTag tag) {
  int64_t moved = 0;
  for (const Tensor& x : xs)
    if (!SameLayout(x.layout(), LaneLayout(x.shape(), x.data_type(), tag))) moved += x.shape()[1];
  return moved;
}

TEST(ConcatInLayouts, TheResultLiesAsMostOfTheImages) {
  constexpr LaneTag kTags[] = {LaneTag::kNhwc, LaneTag::kNChw8c, LaneTag::kNChw16c};
  Random random(34);
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    std::vector<Tensor> plain, opaque;
    std::string what;
    for (int64_t n = random.Int(1, 5); n > 0; --n) {
      // A single block of 8 or 16 channels is channels-last as well.
      const int64_t c = random.Coin() ? 8 * random.Int(1, 3) : random.Int(1, 40);
      const LaneTag tag = kTags[random.Int(0, 2)];
      plain.push_back(RandomTensor(random, {2, c, 3, 4}));
      opaque.push_back(plain.back().ToLayout(LaneLayout(plain.back().shape(), kFloat32, tag)));
      what += " " + std::to_string(c) + " " + LayoutName(opaque.back().layout());
    }
    SCOPED_TRACE(what);
    const Tensor y = Concat(opaque, 1);
    EXPECT_EQ(Values(y), Values(Concat(plain, 1)));
    int64_t least = y.shape()[1], moved = least;
    for (LaneTag tag : kTags) {
      const int64_t by_tag = Moved(opaque, tag);
      least = std::min(least, by_tag);
      if (SameLayout(y.layout(), LaneLayout(y.shape(), kFloat32, tag)))
        moved = std::min(moved, by_tag);
    }
    EXPECT_EQ(moved, least) << LayoutName(y.layout());
  }
}

TEST(ConcatInLayouts, ASingleBlockInFrontIsNotReorderedNorAreTheOthers) {
  Random random(35);
  for (const auto& [block, tag] : {std::pair(8, LaneTag::kNChw8c), {16, LaneTag::kNChw16c}}) {
    std::vector<Tensor> xs;
    for (int64_t c : {block, 3 * block, 24})
      xs.push_back(
          RandomTensor(random, {2, c, 5, 4}).ToLayout(LaneLayout({2, c, 5, 4}, kFloat32, tag)));
    const uint64_t before = GetReorderStats().count;
    const Tensor y = Concat(xs, 1);
    EXPECT_TRUE(SameLayout(y.layout(), LaneLayout(y.shape(), kFloat32, tag)));
    EXPECT_EQ(GetReorderStats().count, before);
  }
}

TEST(ConcatInLayouts, OtherAxesAndReferenceAreRowMajor) {
  Random random(32);
  const Tensor x = RandomTensor(random, {2, 24, 3, 4});
  const Tensor opaque = x.ToLayout(LaneLayout(x.shape(), kFloat32, LaneTag::kNChw8c));
  for (int64_t axis : {0, 2, 3}) {
    const Tensor y = Concat({opaque, x}, axis);
    EXPECT_FALSE(y.is_blocked());
    EXPECT_EQ(Values(y), Values(Concat({x, x}, axis)));
  }
  const PreferenceScope scope(Preference::kReference);
  const Tensor y = Concat({opaque, opaque}, 1);
  const std::vector<Tensor> pieces = Split(opaque, 1, {7, 17});
  EXPECT_FALSE(y.is_blocked());
  EXPECT_EQ(Values(y), Values(Concat({x, x}, 1)));
  EXPECT_FALSE(pieces[1].is_blocked());
  EXPECT_EQ(Values(pieces[1]), Values(x.SliceAxis(1, 7, 24)));
}

TEST(ConcatInLayouts, PiecesOfNothing) {
  Random random(33);
  const Tensor x = RandomTensor(random, {2, 24, 3, 4});
  const Tensor opaque = x.ToLayout(LaneLayout(x.shape(), kFloat32, LaneTag::kNChw8c));
  const std::vector<Tensor> pieces = Split(opaque, 1, {0, 24});
  EXPECT_EQ(pieces[0].shape(), Shape({2, 0, 3, 4}));
  EXPECT_EQ(Values(pieces[1]), Values(x));
  EXPECT_EQ(Values(Concat({pieces[0], opaque, pieces[0]}, 1)), Values(x));
}

}  // namespace
}  // namespace singa::test
