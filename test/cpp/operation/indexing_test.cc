#include "singa/operation/indexing.h"

#include <algorithm>

#include "singa/core/device.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::ExpectError;
using test::Flat;
using test::ForEachIndex;
using test::FromValues;
using test::Index;
using test::Random;
using test::RandomTensor;
using test::Values;

using Doubles = std::vector<double>;

constexpr DType kTypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kInt8,
                            kUInt8,   kInt32,   kInt64,    kBool};
constexpr DType kIndexTypes[] = {kInt32, kInt64, kFloat32, kInt8};

DType AnyType(Random& random) { return kTypes[random.Int(0, 8)]; }

// Values that every type holds exactly, bool apart.
Tensor Whole(Random& random, const Shape& shape, DType dtype) {
  return AnyTensor(random, shape, kFloat64, 0, 100).AsType(kInt32).AsType(dtype);
}

// Whole values in [low, high], any strides.
Tensor Indices(Random& random, const Shape& shape, int64_t low, int64_t high) {
  std::vector<double> values(shape.Count());
  for (double& v : values) v = static_cast<double>(random.Int(low, high));
  const Tensor t = FromValues(shape, values, kIndexTypes[random.Int(0, 3)]);
  if (shape.rank() < 2 || random.Coin()) return t;
  return t.Transpose().Clone().Transpose();
}

// y[to(i)] for every element i of x is x[i]; and the gradient of such a copy is the sum over all
// that an element was copied to.
using Source = std::function<int64_t(const Index&)>;  // flat place in x, or -1 for the constant

void ExpectCopied(const Tensor& y, const Tensor& x, const Shape& y_shape, const Source& source,
                  double constant = 0) {
  ASSERT_EQ(y.shape(), y_shape);
  ASSERT_EQ(y.data_type(), x.data_type());
  const Doubles xs = Values(x), ys = Values(y);
  Doubles expected;
  ForEachIndex(y_shape, [&](const Index& index) {
    const int64_t from = source(index);
    expected.push_back(from < 0 ? constant : xs[from]);
  });
  ASSERT_EQ(ys, expected);
}

void ExpectAdjoint(const Tensor& dx, const Tensor& dy, const Shape& x_shape, const Source& source) {
  ASSERT_EQ(dx.shape(), x_shape);
  const Doubles dys = Values(dy), dxs = Values(dx);
  Doubles expected(x_shape.Count(), 0), magnitude = expected;
  size_t at = 0;
  ForEachIndex(dy.shape(), [&](const Index& index) {
    const int64_t from = source(index);
    if (from >= 0) {
      expected[from] += dys[at];
      magnitude[from] += std::abs(dys[at]);
    }
    ++at;
  });
  for (size_t i = 0; i < dxs.size(); ++i)
    ASSERT_NEAR(dxs[i], expected[i], test::Epsilon(dy.data_type()) * magnitude[i]) << i;
}

TEST(Concat, RandomPiecesOfAllTypes) {
  Random random(11);
  for (int round = 0; round < 250; ++round) {
    const int rank = static_cast<int>(random.Int(1, 5));
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const DType dtype = AnyType(random);
    Shape shape = random.Dims(rank, 1, 5);
    std::vector<Tensor> xs;
    Index ends;
    int64_t total = 0;
    for (int64_t i = random.Int(1, 4); i > 0; --i) {
      shape[axis] = random.Int(0, 5);
      xs.push_back(Whole(random, shape, dtype));
      ends.push_back(total += shape[axis]);
    }
    shape[axis] = total;
    const Tensor y = Concat(xs, random.Coin() ? axis : axis - rank);
    ASSERT_EQ(y.shape(), shape);
    ASSERT_EQ(y.data_type(), dtype);
    for (size_t i = 0; i < xs.size(); ++i) {
      const Tensor piece = y.SliceAxis(axis, i == 0 ? 0 : ends[i - 1], ends[i]);
      ASSERT_EQ(Values(piece), Values(xs[i]));
    }
    std::vector<int64_t> parts;
    for (const Tensor& x : xs) parts.push_back(x.shape()[axis]);
    const auto pieces = Split(y, axis, parts);
    for (size_t i = 0; i < xs.size(); ++i) {
      ASSERT_EQ(pieces[i].block(), y.block());
      ASSERT_EQ(Values(pieces[i]), Values(xs[i]));
    }
  }
}

TEST(Concat, Errors) {
  const Tensor x({2, 3}), y({2, 4});
  ExpectError<std::invalid_argument>([] { Concat({}, 0); }, "[Concat] needs at least one");
  ExpectError<std::invalid_argument>(
      [&] {
        Concat({x, y}, 0);
      },
      "tensor 1 (2, 4) does not fit tensor 0 (2, 3) beside axis 0");
  ExpectError<std::invalid_argument>([&] { Concat({x, Tensor({2})}, 0); }, "does not fit");
  ExpectError<std::invalid_argument>([&] { Concat({x, y}, 2); }, "[Concat]");
  ExpectError<std::invalid_argument>([&] { Concat({x, Tensor()}, 0); }, "empty");
  ExpectError<std::invalid_argument>([&] { Concat({Full({}, 1)}, 0); }, "scalars");
  ExpectError<TypeError>(
      [&] {
        Concat({x, x.AsType(kInt32)}, 0);
      },
      "tensor 1 is int32, tensor 0 float32");
  ExpectError<std::invalid_argument>(
      [&] {
        Concat({x, Tensor({2, 3}, CreateCpuDevice())}, 0);
      },
      "[Concat] a tensor is on");
  ExpectError<std::invalid_argument>(
      [&] {
        Split(x, 1, {1, 1});
      },
      "[Split] parts (1, 1) do not add up to axis 1 of x (2, 3)");
  ExpectError<std::invalid_argument>([&] { Split(x, 1, {4, -1}); }, "do not add up");
}

TEST(Slice, RandomSlicesAgreeWithPythonsRule) {
  Random random(12);
  for (int round = 0; round < 250; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, 7);
    const Tensor x = AnyTensor(random, shape, kFloat64);
    std::vector<int64_t> starts, ends, axes, steps;
    std::vector<Index> picked(rank);  // places along each axis, by Python's rule
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t n = shape[axis];
      if (random.Int(0, 3) == 0) {
        for (int64_t i = 0; i < n; ++i) picked[axis].push_back(i);
        continue;
      }
      const int64_t start = random.Int(-n - 2, n + 2), end = random.Int(-n - 2, n + 2);
      int64_t step = random.Int(1, 3);
      if (random.Coin()) step = -step;
      starts.push_back(start);
      ends.push_back(end);
      axes.push_back(random.Coin() ? axis : axis - rank);
      steps.push_back(step);
      const auto clip = [&](int64_t i) {
        if (i < 0) i += n;
        return step > 0 ? std::clamp<int64_t>(i, 0, n) : std::clamp<int64_t>(i, -1, n - 1);
      };
      for (int64_t i = clip(start); step > 0 ? i < clip(end) : i > clip(end); i += step)
        picked[axis].push_back(i);
    }
    Shape y_shape;
    for (const auto& places : picked) y_shape.push_back(static_cast<int64_t>(places.size()));
    const auto source = [&](const Index& index) {
      Index from;
      for (int axis = 0; axis < rank; ++axis) from.push_back(picked[axis][index[axis]]);
      return static_cast<int64_t>(Flat(shape, from));
    };
    // No axes at all would mean the first ones.
    if (axes.empty()) continue;
    const Tensor y = Slice(x, starts, ends, axes, steps);
    ExpectCopied(y, x, y_shape, source);
    ASSERT_EQ(y.block(), x.block());
    const Tensor dy = AnyTensor(random, y_shape, kFloat32);
    ExpectAdjoint(SliceBackward(dy, shape, starts, ends, axes, steps), dy, shape, source);
  }
}

TEST(Slice, DefaultsAndErrors) {
  const Tensor x = FromValues({2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(Values(Slice(x, {1}, {2})), (Doubles{3, 4, 5}));
  EXPECT_EQ(Values(Slice(x, {0, 1}, {1'000'000, INT64_MAX})), (Doubles{1, 2, 4, 5}));
  EXPECT_EQ(Values(Slice(x, {-1}, {INT64_MIN}, {1}, {-1})), (Doubles{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(Values(Slice(x, {}, {})), Values(x));
  ExpectError<std::invalid_argument>([&] { Slice(x, {0}, {1, 2}); }, "of one length, got 1, 2");
  ExpectError<std::invalid_argument>([&] { Slice(x, {0}, {1}, {2}); }, "[Slice]");
  ExpectError<std::invalid_argument>(
      [&] {
        Slice(x, {0, 0}, {1, 1}, {1, -1});
      },
      "axis 1 appears twice");
  ExpectError<std::invalid_argument>([&] { Slice(x, {0}, {1}, {0}, {0}); },
                                     "the step of axis 0 is zero");
  ExpectError<std::invalid_argument>([&] { Slice(x, {0, 0, 0}, {1, 1, 1}); }, "3 starts");
  ExpectError<std::invalid_argument>(
      [&] {
        SliceBackward(x, {2, 3}, {0}, {1}, {}, {});
      },
      "[SliceBackward] dy has to have shape (1, 3), got");
  ExpectError<TypeError>(
      [&] {
        SliceBackward(x.AsType(kInt32), {2, 3}, {0}, {2}, {}, {});
      },
      "float type");
}

TEST(Gather, RandomShapesAndTypes) {
  Random random(13);
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const Shape shape = random.Dims(rank, 1, round % 10 == 0 ? 40 : 6);
    const Shape index_shape = random.Dims(static_cast<int>(random.Int(0, 2)), 0, 6);
    const int64_t n = shape[axis];
    const Tensor indices = Indices(random, index_shape, -n, n - 1);
    const Doubles picks = Values(indices);
    const Tensor x = Whole(random, shape, AnyType(random));
    Shape y_shape;
    for (int i = 0; i < axis; ++i) y_shape.push_back(shape[i]);
    for (int64_t dim : index_shape) y_shape.push_back(dim);
    for (int i = axis + 1; i < rank; ++i) y_shape.push_back(shape[i]);
    const auto source = [&](const Index& index) {
      const Index at(index.begin() + axis, index.begin() + axis + index_shape.rank());
      auto pick = static_cast<int64_t>(picks[Flat(index_shape, at)]);
      Index from(index.begin(), index.begin() + axis);
      from.push_back(pick < 0 ? pick + n : pick);
      from.insert(from.end(), index.begin() + axis + index_shape.rank(), index.end());
      return static_cast<int64_t>(Flat(shape, from));
    };
    const int64_t given = random.Coin() ? axis : axis - rank;
    ExpectCopied(Gather(x, given, indices), x, y_shape, source);
    const Tensor dy = AnyTensor(random, y_shape, random.Coin() ? kFloat32 : kBFloat16);
    ExpectAdjoint(GatherBackward(dy, shape, given, indices), dy, shape, source);
  }
}

TEST(Gather, WideRowsPickedOften) {
  Random random(14);
  const Shape shape{50, 300};
  const Tensor indices = Indices(random, {2000}, 0, 3);
  const Doubles picks = Values(indices);
  const Tensor dy = RandomTensor(random, {2000, 300});
  const auto source = [&](const Index& index) {
    return static_cast<int64_t>(picks[index[0]]) * 300 + index[1];
  };
  ExpectAdjoint(GatherBackward(dy, shape, 0, indices), dy, shape, source);
}

TEST(Gather, Errors) {
  const Tensor x({2, 3});
  const auto at = [](double value, DType dtype = kInt64) {
    return FromValues({1}, {value}, dtype);
  };
  ExpectError<std::out_of_range>([&] { Gather(x, 1, at(3)); },
                                 "[Gather] index 3 at position 0 is outside [-3, 3)");
  ExpectError<std::out_of_range>([&] { Gather(x, 0, at(-3)); }, "index -3");
  ExpectError<std::out_of_range>([&] { Gather(x, 0, at(HUGE_VAL, kFloat32)); }, "outside [-2, 2)");
  ExpectError<std::out_of_range>([&] { Gather(Tensor({0, 3}), 0, at(0)); }, "outside [0, 0)");
  ExpectError<std::invalid_argument>([&] { Gather(x, 0, at(0.5, kFloat32)); },
                                     "index 0.5 at position 0 is not a whole number");
  ExpectError<std::invalid_argument>([&] { Gather(x, 0, at(NAN, kFloat32)); }, "not a whole");
  ExpectError<TypeError>([&] { Gather(x, 0, at(1, kBool)); }, "indices has to hold numbers");
  ExpectError<std::invalid_argument>([&] { Gather(x, 2, at(0)); }, "[Gather]");
  ExpectError<std::invalid_argument>([&] { Gather(Tensor(), 0, at(0)); }, "x is an empty");
  ExpectError<std::invalid_argument>([&] { Gather(x, 0, Tensor()); }, "indices is an empty");
  ExpectError<std::invalid_argument>(
      [&] {
        Gather(Tensor(Shape::Filled(12, 1)), 0, Tensor({1, 1}, nullptr, kInt32));
      },
      "more than 12 dimensions");
  ExpectError<std::out_of_range>(
      [&] {
        GatherBackward(Tensor({1, 3}), {2, 3}, 0, at(2));
      },
      "[GatherBackward] index 2");
  ExpectError<std::invalid_argument>(
      [&] {
        GatherBackward(Tensor({2, 3}), {2, 3}, 0, at(1));
      },
      "dy has to have shape (1, 3), got");
}

TEST(ScatterElements, RandomShapesLastWriteWins) {
  Random random(15);
  for (int round = 0; round < 250; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const Shape shape = random.Dims(rank, 1, 6);
    Shape index_shape = shape;
    for (int i = 0; i < rank; ++i)
      index_shape[i] = i == axis ? random.Int(0, 9) : random.Int(1, shape[i]);
    const int64_t n = shape[axis];
    const Tensor indices = Indices(random, index_shape, -n, n - 1);
    const DType dtype = AnyType(random);
    const Tensor x = Whole(random, shape, dtype), updates = Whole(random, index_shape, dtype);
    const Tensor y = ScatterElements(x, indices, updates, random.Coin() ? axis : axis - rank);
    const Doubles picks = Values(indices), us = Values(updates);
    Doubles expected = Values(x);
    Index writer(expected.size(), -1);  // who wrote last
    ForEachIndex(index_shape, [&](const Index& index) {
      const size_t i = Flat(index_shape, index);
      const auto pick = static_cast<int64_t>(picks[i]);
      Index to = index;
      to[axis] = pick < 0 ? pick + n : pick;
      expected[Flat(shape, to)] = us[i];
      writer[Flat(shape, to)] = static_cast<int64_t>(i);
    });
    ASSERT_EQ(y.data_type(), dtype);
    ASSERT_EQ(Values(y), expected) << "round " << round;

    const Tensor dy = AnyTensor(random, shape, kFloat32);
    const auto grads = ScatterElementsBackward(dy, indices, axis);
    Doubles dx = Values(dy), du(us.size(), 0);
    for (size_t i = 0; i < writer.size(); ++i) {
      if (writer[i] < 0) continue;
      du[writer[i]] = dx[i];
      dx[i] = 0;
    }
    ASSERT_EQ(Values(grads[0]), dx);
    ASSERT_EQ(grads[1].shape(), index_shape);
    ASSERT_EQ(Values(grads[1]), du);
  }
}

TEST(ScatterElements, Errors) {
  const Tensor x({2, 3}), updates({1, 3});
  const Tensor indices = FromValues({1, 3}, {0, 1, 2}, kInt32);
  ExpectError<std::out_of_range>([&] { ScatterElements(x, indices, updates, 0); },
                                 "[ScatterElements] index 2 at position 2 is outside [-2, 2)");
  ExpectError<std::invalid_argument>([&] { ScatterElements(x, indices, x, 1); },
                                     "updates has to have shape (1, 3), got");
  ExpectError<TypeError>([&] { ScatterElements(x, indices, updates.AsType(kFloat64), 1); },
                         "updates has to be float32");
  ExpectError<std::invalid_argument>(
      [&] {
        ScatterElements(Tensor({2, 2}), indices, updates, 0);
      },
      "no longer than it");
  ExpectError<std::invalid_argument>([&] { ScatterElements(x, indices, updates, 2); },
                                     "[ScatterElements]");
  ExpectError<TypeError>([&] { ScatterElementsBackward(x.AsType(kInt32), indices, 1); },
                         "float type");
}

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
      "[Tile] repeats (1, -1) has to be at least 0");
  ExpectError<std::invalid_argument>([&] { Tile(x, {INT64_MAX, 1}); }, "too large");
  ExpectError<std::invalid_argument>([&] { Tile(x, std::vector<int64_t>(13, 1)); }, "13 repeats");
  ExpectError<std::invalid_argument>(
      [&] {
        TileBackward(x, {2, 3}, {2, 1});
      },
      "[TileBackward] dy has to have shape (4, 3), got");
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
      "[Pad] mode has to be constant, reflect or edge, got 'wrap'");
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
      "[PadBackward] dy has to have shape (3, 3), got");
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

TEST(OneHot, AnyAxisAndType) {
  Random random(22);
  for (int round = 0; round < 100; ++round) {
    const int rank = static_cast<int>(random.Int(0, 3));
    const Shape shape = random.Dims(rank, 1, 5);
    const int64_t depth = random.Int(0, 6);
    const auto axis = static_cast<int>(random.Int(0, rank));
    const Tensor indices = Indices(random, shape, -depth - 2, depth + 2);
    const DType dtype = AnyType(random);
    const Tensor y = OneHot(indices, depth, 0, 1, random.Coin() ? axis : axis - rank - 1, dtype);
    ASSERT_EQ(y.data_type(), dtype);
    Shape y_shape = shape;
    y_shape.insert(axis, depth);
    ASSERT_EQ(y.shape(), y_shape);
    const Doubles picks = Values(indices), ys = Values(y);
    ForEachIndex(y_shape, [&](const Index& index) {
      Index at = index;
      at.erase(at.begin() + axis);
      const double pick = picks[Flat(shape, at)];
      const bool on = pick == static_cast<double>(index[axis]) ||
                      pick + static_cast<double>(depth) == static_cast<double>(index[axis]);
      ASSERT_EQ(ys[Flat(y_shape, index)], on);
    });
  }
  EXPECT_EQ(Values(OneHot(FromValues({2}, {1, -1}, kInt32), 3, -2, 5, -1, kFloat16)),
            (Doubles{-2, 5, -2, -2, -2, 5}));
  const Tensor indices = Full({2}, 0, nullptr, kInt32);
  ExpectError<std::invalid_argument>([&] { OneHot(indices, -1, 0, 1, 0, kFloat32); }, "depth");
  ExpectError<std::invalid_argument>([&] { OneHot(indices, 2, 0, 1, 2, kFloat32); }, "[OneHot]");
  ExpectError<std::invalid_argument>([&] { OneHot(Full({1}, 0.5), 2, 0, 1, 0, kFloat32); },
                                     "not a whole number");
}

TEST(NonZero, RowMajorPositions) {
  Random random(23);
  for (int round = 0; round < 100; ++round) {
    const int rank = static_cast<int>(random.Int(0, 4));
    const Shape shape = random.Dims(rank, round % 10 == 0 ? 0 : 1, 6);
    const Tensor x =
        AnyTensor(random, shape, kFloat64, -1, 2).AsType(kInt32).AsType(AnyType(random));
    const Tensor y = NonZero(x);
    ASSERT_EQ(y.data_type(), kInt64);
    const Doubles xs = Values(x);
    std::vector<Index> found;
    ForEachIndex(shape, [&](const Index& index) {
      if (xs[Flat(shape, index)] != 0) found.push_back(index);
    });
    ASSERT_EQ(y.shape(), Shape({rank, static_cast<int64_t>(found.size())}));
    const Doubles ys = Values(y);
    for (size_t i = 0; i < found.size(); ++i)
      for (int axis = 0; axis < rank; ++axis)
        ASSERT_EQ(ys[axis * found.size() + i], static_cast<double>(found[i][axis]));
  }
  // Several pieces.
  Tensor x = Full({3, 70'000}, 0);
  x.SliceAxis(1, 5, 70'000, 7).Fill(1);
  const Doubles ys = Values(NonZero(x));
  const size_t count = ys.size() / 2;
  ASSERT_EQ(count, 30'000u);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(ys[i], static_cast<double>(i / 10'000));
    ASSERT_EQ(ys[count + i], static_cast<double>(5 + i % 10'000 * 7));
  }
  EXPECT_EQ(NonZero(FromValues({3}, {NAN, 0, -0.0})).shape(), Shape({1, 1}));
  ExpectError<std::invalid_argument>([] { NonZero(Tensor()); }, "[NonZero] x is an empty");
}

}  // namespace
}  // namespace singa
