// Parts of images and padded images in the layouts of our kernels, beside those of row-major ones.

#include "backend/cpu/lane_layouts.h"
#include "singa/operation/indexing.h"

namespace singa::test {
namespace {

std::string Traced(const Shape& shape, DType dtype, Tag tag) {
  return shape.ToString() + " " + DTypeName(dtype) + " layout " +
         std::to_string(static_cast<int>(tag));
}

TEST(BoxesInLayouts, PadsAreThoseOfRowMajorImages) {
  Random random(45);
  int cropped = 0;
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    const int rank = static_cast<int>(random.Int(3, 5));
    Shape shape = random.Dims(rank, 1, 6);
    shape[1] = random.Int(1, 40);
    const DType dtype = random.Coin() ? kFloat32 : kBFloat16;
    const bool channels = random.Coin();  // or spatial axes alone
    std::vector<int64_t> pads(static_cast<size_t>(2 * rank), 0);
    for (int axis = channels ? 0 : 2; axis < rank; ++axis) {
      const auto end = static_cast<size_t>(axis + rank);
      pads[static_cast<size_t>(axis)] = random.Int(-1, axis == 1 ? 20 : 3);
      pads[end] = std::max(random.Int(-1, 3), 1 - shape[axis] - pads[static_cast<size_t>(axis)]);
      cropped += pads[end] < 0;
    }
    const double constant = random.Coin() ? 0 : random.Coin() ? kInf : -1.5;
    const Tensor plain = RandomTensor(random, shape).AsType(dtype);
    const Tensor want = Pad(plain, "constant", pads, constant);
    const Tensor dy = RandomTensor(random, want.shape()).AsType(dtype);
    const Tensor dx = PadBackward(dy, shape, "constant", pads);
    for (Tag tag : kTags) {
      SCOPED_TRACE(Traced(shape, dtype, tag) + " to " + want.shape().ToString());
      const Tensor x = In(plain, tag), dy_laid = In(dy, tag);
      const uint64_t reorders = Reorders();
      const Tensor y = Pad(x, "constant", pads, constant);
      const Tensor back = PadBackward(dy_laid, shape, "constant", pads);
      EXPECT_EQ(Reorders(), reorders);
      if (x.layout()) ExpectIn(y, tag, "y");
      if (dy_laid.layout()) ExpectIn(back, tag, "dx");
      ExpectEqual(y, want, "y");
      ExpectEqual(back, dx, "dx");
    }
  }
  EXPECT_GT(cropped, 30);
}

TEST(BoxesInLayouts, SlicesAreThoseOfRowMajorImages) {
  Random random(46);
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    const int rank = static_cast<int>(random.Int(3, 5));
    Shape shape = random.Dims(rank, 1, 7);
    shape[1] = random.Int(1, 40);
    const DType dtype = random.Coin() ? kFloat32 : kBFloat16;
    const int64_t axis = random.Int(0, rank - 1), n = shape[static_cast<int>(axis)];
    const int64_t begin = random.Int(0, n - 1), end = random.Int(begin + 1, n);
    const Tensor plain = RandomTensor(random, shape).AsType(dtype);
    const Tensor want = Slice(plain, {begin}, {end}, {axis}, {1});
    const Tensor dy = RandomTensor(random, want.shape()).AsType(dtype);
    const Tensor dx = SliceBackward(dy, shape, {begin}, {end}, {axis}, {1});
    for (Tag tag : kTags) {
      SCOPED_TRACE(Traced(shape, dtype, tag) + " axis " + std::to_string(axis));
      const Tensor x = In(plain, tag), dy_laid = In(dy, tag);
      const uint64_t reorders = Reorders();
      const Tensor y = Slice(x, {begin}, {end}, {axis}, {1});
      const Tensor back = SliceBackward(dy_laid, shape, {begin}, {end}, {axis}, {1});
      EXPECT_EQ(Reorders(), reorders);
      if (x.layout()) ExpectIn(y, tag, "y");
      if (dy_laid.layout()) ExpectIn(back, tag, "dx");
      ExpectEqual(y, want, "y");
      ExpectEqual(back, dx, "dx");
    }
  }
}

TEST(BoxesInLayouts, OtherPadsTakeImagesAsPlainOnes) {
  Random random(47);
  const Tensor plain = RandomTensor(random, {2, 16, 4, 5});
  const std::vector<int64_t> pads = {0, 0, 1, 2, 0, 0, 2, 1};
  for (const char* mode : {"reflect", "edge", "wrap"})
    ExpectEqual(Pad(In(plain, Tag::kNChw8c), mode, pads), Pad(plain, mode, pads), mode);
}

}  // namespace
}  // namespace singa::test
