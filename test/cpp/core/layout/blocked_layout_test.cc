#include "core/layout/blocked_layout.h"

#include <algorithm>

#include "support.h"

namespace singa::test {
namespace {

using Block = Placement::Block;

/// A placement with axes in random order, each split up to three times.
Placement AnyPlacement(Random& random) {
  const int rank = static_cast<int>(random.Int(1, 5));
  std::vector<int64_t> dims;
  for (int axis = 0; axis < rank; ++axis) dims.push_back(random.Int(1, 9));
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(random.Int(0, static_cast<int64_t>(i) - 1))]);
  std::vector<Block> blocks;
  for (int64_t i = random.Int(0, 3); i > 0; --i)
    blocks.push_back({static_cast<int>(random.Int(0, rank - 1)), random.Int(2, 5)});
  return Placement::Of(Shape(dims), order, blocks);
}

/// Offset of the element at `position`, by the definition.
int64_t Offset(const Placement& placement, std::vector<int64_t> position) {
  int64_t offset = 0, width = 1;
  for (auto block = placement.blocks.rbegin(); block != placement.blocks.rend(); ++block) {
    int64_t& at = position[static_cast<size_t>(block->axis)];
    offset += at % block->size * width;
    width *= block->size;
    at /= block->size;
  }
  for (size_t axis = 0; axis < position.size(); ++axis)
    offset += position[axis] * placement.strides[static_cast<int>(axis)];
  return offset;
}

TEST(BlockedLayoutTest, PacksByTheDefinitionAndPadsWithZeros) {
  Random random(3);
  int blocked = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Placement placement = AnyPlacement(random);
    const LayoutPtr layout = MakeBlockedLayout(placement, kFloat32);
    if (!layout) continue;  // row-major
    ++blocked;
    SCOPED_TRACE(placement.dims.ToString() + " " + layout->ToString());
    const int64_t count = placement.dims.Count();
    std::vector<float> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 1.0f);
    ASSERT_EQ(layout->bytes(), static_cast<size_t>(placement.padded.Count()) * sizeof(float));
    std::vector<float> packed(layout->bytes() / sizeof(float), -1.0f);
    layout->Pack(values.data(), packed.data());
    std::vector<float> expected(packed.size(), 0.0f);
    std::vector<int64_t> position(static_cast<size_t>(placement.dims.rank()), 0);
    for (int64_t i = 0; i < count; ++i) {
      expected[static_cast<size_t>(Offset(placement, position))] = values[static_cast<size_t>(i)];
      for (int axis = placement.dims.rank(); axis-- > 0;) {
        if (++position[static_cast<size_t>(axis)] < placement.dims[axis]) break;
        position[static_cast<size_t>(axis)] = 0;
      }
    }
    ASSERT_EQ(packed, expected);
    std::vector<float> back(values.size(), -1.0f);
    layout->Unpack(packed.data(), back.data());
    ASSERT_EQ(back, values);
  }
  EXPECT_GT(blocked, 200);
}

TEST(BlockedLayoutTest, ElementsOfAnySizeComeBack) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const Placement placement = AnyPlacement(random);
    for (const DType type : {kUInt8, kFloat16, kFloat32, kFloat64}) {
      const LayoutPtr layout = MakeBlockedLayout(placement, type);
      if (!layout) continue;  // row-major
      SCOPED_TRACE(placement.dims.ToString() + " " + layout->ToString() + " of " + DTypeName(type));
      std::vector<uint8_t> values(static_cast<size_t>(placement.dims.Count()) * SizeOf(type));
      for (uint8_t& byte : values) byte = static_cast<uint8_t>(random.Int(0, 255));
      std::vector<uint8_t> packed(layout->bytes()), back(values.size());
      layout->Pack(values.data(), packed.data());
      layout->Unpack(packed.data(), back.data());
      ASSERT_EQ(back, values);
    }
  }
}

TEST(BlockedLayoutTest, ATagSaysTheWholePlacement) {
  Random random(4);
  for (int trial = 0; trial < 300; ++trial) {
    const Placement placement = AnyPlacement(random);
    const std::string tag = placement.Tag();
    const std::optional<Placement> read = Placement::FromTag(tag, placement.dims);
    ASSERT_TRUE(read) << tag;
    EXPECT_TRUE(*read == placement) << tag << " of " << placement.dims.ToString();
  }
}

TEST(BlockedLayoutTest, TagsOfNoLayout) {
  const Shape x = {2, 20, 5, 7};
  for (const char* tag : {"", "n", "nch", "nchww", "nchx", "nChw", "nchw16c", "nChw16", "nChw16C",
                          "nChw16n", "nChw99999c", "nCh16cw", "16cnhw", "nchW65536w2w"})
    EXPECT_EQ(BlockedLayoutNamed(tag, x, kFloat32), nullptr) << tag;
  EXPECT_EQ(BlockedLayoutNamed("nchw", x, kFloat32), nullptr);  // row-major
  EXPECT_EQ(LayoutName(BlockedLayoutNamed("OIhw16i16o2i", {40, 20, 3, 3}, kBFloat16)),
            "OIhw16i16o2i");
  EXPECT_EQ(BlockedLayoutNamed("OIhw16i16o", {40, 20, 3}, kFloat32), nullptr);
  EXPECT_EQ(BlockedLayoutNamed("nhwc", {0, 20, 3, 3}, kFloat32), nullptr);
}

TEST(BlockedLayoutTest, StridesOfLayoutsWithoutBlocks) {
  EXPECT_EQ(BlockedLayoutNamed("nhwc", {2, 3, 4, 5}, kFloat32)->strides(), Strides({60, 1, 15, 3}));
  EXPECT_EQ(BlockedLayoutNamed("nwc", {2, 3, 4}, kFloat32)->strides(), Strides({12, 1, 3}));
  EXPECT_FALSE(BlockedLayoutNamed("nChw16c", {2, 32, 4, 5}, kFloat32)->strides());
  EXPECT_FALSE(BlockedLayoutNamed("ghwio/2", {4, 3, 3, 3}, kFloat32)->strides());
}

TEST(BlockedLayoutTest, GroupedFilters) {
  const Shape w = {24, 2, 3, 3};
  const LayoutPtr layout = BlockedLayoutNamed("gOIhw4i4o/3", w, kFloat32);
  ASSERT_NE(layout, nullptr);
  const BlockedLayout* blocked = AsBlocked(layout);
  EXPECT_EQ(layout->shape(), w);
  EXPECT_EQ(blocked->placement().dims, Shape({3, 8, 2, 3, 3}));
  EXPECT_EQ(blocked->plain().strides, Placement::RowMajor({3, 8, 2, 3, 3}).strides);
  EXPECT_EQ(NameOf(*blocked), "gOIhw4i4o/3");
  for (const char* name :
       {"gOIhw4i4o", "gOIhw4i4o/5", "gOIhw4i4o/0", "gOIhw4i4o/-3", "gOIhw4i4o/", "gOIhw4i4o/3x",
        "gOIhw4i4o/99999999999999999999", "OIhw4i4o/3", "goihw/3", "nhwc/2"})
    EXPECT_EQ(BlockedLayoutNamed(name, w, kFloat32), nullptr) << name;
}

}  // namespace
}  // namespace singa::test
