// Operations that repeat, move or surround what is there: Tile, Repeat, Roll, ChannelShuffle, Pad,
// Upsample.

#include <algorithm>

#include "model/operation/copied.h"
#include "singa/operation/indexing.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::AnyType;
using test::Doubles;
using test::ExpectAdjoint;
using test::ExpectCopied;
using test::ExpectError;
using test::Flat;
using test::FromValues;
using test::Index;
using test::Random;
using test::RandomTensor;
using test::Values;
using test::Whole;

TEST(Tile, RandomShapesForwardAndBackward) {
  Random random(16);
  for (int round = 0; round < 250; ++round) {
    const int rank = static_cast<int>(random.Int(0, 4));
    const Shape shape = random.Dims(rank, round % 20 == 0 ? 0 : 1, 5);
    const Shape counts = random.Dims(static_cast<int>(random.Int(0, 4)), 0, 3);
    Shape wide = shape, times = counts;
    while (wide.rank() < times.rank()) wide.insert(0, 1);
    while (times.rank() < wide.rank()) times.insert(0, 1);
    Shape y_shape = wide;
    for (int axis = 0; axis < wide.rank(); ++axis) y_shape[axis] *= times[axis];
    const auto source = [&](const Index& index) {
      Index from = index;
      for (int axis = 0; axis < wide.rank(); ++axis) from[axis] %= wide[axis];
      return static_cast<int64_t>(Flat(wide, from));
    };
    const Tensor x = Whole(random, shape, AnyType(random));
    ExpectCopied(Tile(x, counts.ToVector()), x, y_shape, source);
    const Tensor dy = AnyTensor(random, y_shape);
    ExpectAdjoint(TileBackward(dy, shape, counts.ToVector()), dy, shape, source);
  }
}

TEST(Tile, LargeRows) {
  Random random(17);
  const Tensor x = RandomTensor(random, {3, 700});
  const auto source = [](const Index& index) { return index[0] % 3 * 700 + index[1] % 700; };
  ExpectCopied(Tile(x, {5, 20}), x, {15, 14000}, source);
  const Tensor dy = RandomTensor(random, {15, 14000});
  ExpectAdjoint(TileBackward(dy, {3, 700}, {5, 20}), dy, {3, 700}, source);
}

TEST(Tile, Errors) {
  const Tensor x({2, 3});
  ExpectError<std::invalid_argument>(
      [&] {
        Tile(x, {1, -1});
      },
      "[Tile] repeats (1, -1) must be at least 0");
  ExpectError<std::invalid_argument>([&] { Tile(x, {INT64_MAX, 1}); }, "too large");
  ExpectError<std::invalid_argument>([&] { Tile(x, std::vector<int64_t>(13, 1)); }, "13 repeats");
  ExpectError<std::invalid_argument>(
      [&] {
        TileBackward(x, {2, 3}, {2, 1});
      },
      "[TileBackward] dy must have shape (4, 3), got");
}

TEST(Repeat, OneCountAndOneForEachElement) {
  Random random(18);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, 5);
    const bool flattened = random.Int(0, 3) == 0;
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const Tensor x = Whole(random, shape, AnyType(random));
    const int64_t n = flattened ? shape.Count() : shape[axis];
    const bool each = random.Coin() && n > 1;
    std::vector<int64_t> counts(each ? n : 1);
    for (int64_t& count : counts) count = random.Int(0, 3);
    Index from;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = each ? counts[i] : counts[0]; k > 0; --k) from.push_back(i);
    Shape y_shape = flattened ? Shape{n} : shape;
    y_shape[flattened ? 0 : axis] = static_cast<int64_t>(from.size());
    const auto source = [&](Index index) {
      if (flattened) return from[index[0]];
      index[axis] = from[index[axis]];
      return static_cast<int64_t>(Flat(shape, index));
    };
    ExpectCopied(flattened ? Repeat(x, counts) : Repeat(x, counts, axis - rank), x, y_shape,
                 source);
  }
  const Tensor x({2, 3});
  ExpectError<std::invalid_argument>([&] { Repeat(x, {1, 2}, 1); }, "axis 1 of x (2, 3), got 2");
  ExpectError<std::invalid_argument>([&] { Repeat(x, {-1}, 1); }, "[Repeat] repeats");
  ExpectError<std::invalid_argument>([&] { Repeat(x, {1, 1, -1}, 1); }, "got -1 for element 2");
  ExpectError<std::invalid_argument>([&] { Repeat(x, {1}, 2); }, "[Repeat]");
  ExpectError<std::invalid_argument>([&] { Repeat(x, {}, 0); }, "got 0");
}

TEST(ChannelShuffle, GroupsTakeTurns) {
  Random random(42);
  for (int round = 0; round < 100; ++round) {
    const int64_t groups = random.Int(1, 5), length = random.Int(1, 5);
    Shape shape = random.Dims(static_cast<int>(random.Int(2, 5)), round % 9 == 0 ? 0 : 1, 5);
    shape[1] = groups * length;
    const Tensor x = Whole(random, shape, AnyType(random));
    const Tensor y = ChannelShuffle(x, groups);
    ExpectCopied(y, x, shape, [&](const Index& index) {
      Index from = index;
      from[1] = index[1] % groups * length + index[1] / groups;
      return static_cast<int64_t>(Flat(shape, from));
    });
    EXPECT_EQ(Values(ChannelShuffle(y, length)), Values(x));
  }
  const Tensor x({2, 6, 3});
  ExpectError<std::invalid_argument>([&] { ChannelShuffle(x, 4); },
                                     "[ChannelShuffle] 4 groups do not divide the channels of x");
  ExpectError<std::invalid_argument>([&] { ChannelShuffle(x, 0); }, "[ChannelShuffle] 0 groups");
  ExpectError<std::invalid_argument>([&] { ChannelShuffle(Tensor({4}), 2); }, "[ChannelShuffle]");
}

TEST(Roll, RandomShiftsOfSomeAxes) {
  Random random(41);
  for (int round = 0; round < 150; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, round % 9 == 0 ? 0 : 1, round % 7 == 0 ? 30 : 5);
    std::vector<int64_t> shifts, axes;
    Index total(static_cast<size_t>(rank), 0);
    for (int64_t i = random.Int(0, 3); i > 0; --i) {
      const auto axis = static_cast<int>(random.Int(0, rank - 1));
      axes.push_back(random.Coin() ? axis : axis - rank);
      shifts.push_back(random.Int(-20, 20));
      total[static_cast<size_t>(axis)] += shifts.back();
    }
    const Tensor x = Whole(random, shape, AnyType(random));
    ExpectCopied(Roll(x, shifts, axes), x, shape, [&](const Index& index) {
      Index from;
      for (int i = 0; i < rank; ++i) {
        const int64_t n = shape[i];
        from.push_back(((index[i] - total[i]) % n + n) % n);
      }
      return static_cast<int64_t>(Flat(shape, from));
    });
  }
  const Tensor x({2, 3});
  ExpectError<std::invalid_argument>(
      [&] {
        Roll(x, {1, 2}, {0});
      },
      "[Roll] needs one shift for each axis, got shifts (1, 2)");
  ExpectError<std::invalid_argument>([&] { Roll(x, {1}, {2}); }, "[Roll]");
  EXPECT_EQ(Values(Roll(FromValues({3}, {1, 2, 3}), {INT64_MIN, INT64_MAX}, {0, 0})),
            (Doubles{2, 3, 1}));
}

TEST(Pad, RandomShapesInAllModes) {
  Random random(19);
  const std::string modes[] = {"constant", "reflect", "edge"};
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, 6);
    const std::string& mode = modes[round % 3];
    std::vector<int64_t> pads(2 * rank);
    Shape y_shape = shape;
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t n = shape[axis];
      int64_t& begin = pads[axis];
      int64_t& end = pads[axis + rank];
      if (random.Coin()) begin = random.Int(-n, 8);
      if (random.Coin()) end = random.Int(-n, 20);
      if (n + begin + end < 0) end = -n - begin;
      y_shape[axis] = n + begin + end;
    }
    const auto source = [&](const Index& index) {
      Index from = index;
      for (int axis = 0; axis < rank; ++axis) {
        const int64_t n = shape[axis];
        int64_t& i = from[axis];
        i -= pads[axis];
        if (mode == "constant" && (i < 0 || i >= n)) return int64_t{-1};
        if (mode == "edge" || n == 1) i = std::clamp<int64_t>(i, 0, n - 1);
        while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;  // one mirror at a time
      }
      return static_cast<int64_t>(Flat(shape, from));
    };
    const DType dtype = AnyType(random);
    const Tensor x = Whole(random, shape, dtype);
    const double constant = dtype == kBool ? 1 : 7;
    ExpectCopied(Pad(x, mode, pads, constant), x, y_shape, source, constant);
    const Tensor dy = AnyTensor(random, y_shape);
    ExpectAdjoint(PadBackward(dy, shape, mode, pads), dy, shape, source);
  }
}

TEST(Pad, ImagesOfSeveralTypes) {
  Random random(20);
  for (const DType dtype : {kFloat32, kBFloat16, kUInt8, kFloat64}) {
    const Tensor x = Whole(random, {2, 3, 20, 40}, dtype);
    const auto source = [](const Index& index) {
      const int64_t h = index[2] - 4, w = index[3] - 4;
      if (h < 0 || h >= 20 || w < 0 || w >= 40) return int64_t{-1};
      return ((index[0] * 3 + index[1]) * 20 + h) * 40 + w;
    };
    ExpectCopied(Pad(x, "constant", {0, 0, 4, 4, 0, 0, 4, 4}), x, {2, 3, 28, 48}, source);
  }
}

TEST(Pad, Errors) {
  const Tensor x({2, 3});
  ExpectError<std::invalid_argument>(
      [&] {
        Pad(x, "wrap", {0, 0, 0, 0});
      },
      "[Pad] mode must be constant, reflect or edge, got 'wrap'");
  ExpectError<std::invalid_argument>(
      [&] {
        Pad(x, "edge", {0, 0, 0});
      },
      "needs 4 pads for shape (2, 3), got 3");
  ExpectError<std::invalid_argument>(
      [&] {
        Pad(x, "edge", {-1, 0, -2, 0});
      },
      "crop axis 0 of shape (2, 3) to less than nothing");
  ExpectError<std::invalid_argument>([&] { Pad(x, "edge", {INT64_MAX, 0, 1, 0}); }, "out of range");
  ExpectError<std::invalid_argument>(
      [&] {
        Pad(Tensor({0, 3}), "reflect", {1, 0, 0, 0});
      },
      "needs an element along axis 0");
  EXPECT_EQ(Values(Pad(Tensor({0}), "constant", {1, 1}, 2)), (Doubles{2, 2}));
  ExpectError<std::invalid_argument>(
      [&] {
        PadBackward(x, {2, 3}, "constant", {1, 0, 0, 0});
      },
      "[PadBackward] dy must have shape (3, 3), got");
}

TEST(Upsample, RandomShapes) {
  Random random(21);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, 6);
    const Shape scales = random.Dims(rank, 1, 4);
    Shape y_shape = shape;
    for (int axis = 0; axis < rank; ++axis) y_shape[axis] *= scales[axis];
    const auto source = [&](const Index& index) {
      Index from = index;
      for (int axis = 0; axis < rank; ++axis) from[axis] /= scales[axis];
      return static_cast<int64_t>(Flat(shape, from));
    };
    const Tensor x = Whole(random, shape, AnyType(random));
    ExpectCopied(Upsample(x, scales.ToVector()), x, y_shape, source);
    const Tensor dy = AnyTensor(random, y_shape);
    ExpectAdjoint(UpsampleBackward(dy, scales.ToVector()), dy, shape, source);
  }
  const Tensor x({2, 3});
  ExpectError<std::invalid_argument>([&] { Upsample(x, {2}); }, "one scale for each axis");
  ExpectError<std::invalid_argument>([&] { Upsample(x, {2, 0}); }, "[Upsample] scales (2, 0)");
  ExpectError<std::invalid_argument>(
      [&] {
        UpsampleBackward(x, {1, 2});
      },
      "scale 2 does not divide axis 1 of dy (2, 3)");
}

}  // namespace
}  // namespace singa
