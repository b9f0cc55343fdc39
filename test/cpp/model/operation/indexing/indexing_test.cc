#include "singa/operation/indexing.h"

#include <algorithm>
#include <cmath>

#include "model/operation/copied.h"
#include "singa/core/device.h"
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
using test::ForEachIndex;
using test::FromValues;
using test::Index;
using test::Indices;
using test::Random;
using test::RandomTensor;
using test::Values;
using test::Whole;

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
    std::vector<Index> picked(rank);  // positions along each axis, by Python's rule
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
    // Without axes Slice would use the first ones.
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
      "[SliceBackward] dy must have shape (1, 3), got");
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
  ExpectError<TypeError>([&] { Gather(x, 0, at(1, kBool)); }, "indices must hold numbers");
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
      "dy must have shape (1, 3), got");
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
    Index writer(expected.size(), -1);  // the update that wrote last
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
                                     "updates must have shape (1, 3), got");
  ExpectError<TypeError>([&] { ScatterElements(x, indices, updates.AsType(kFloat64), 1); },
                         "updates must be float32");
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

TEST(GatherElements, RandomShapesAndTypes) {
  Random random(31);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const Shape shape = random.Dims(rank, 1, 6);
    Shape index_shape = shape;
    for (int i = 0; i < rank; ++i)
      index_shape[i] = i == axis ? random.Int(0, 9) : random.Int(1, shape[i]);
    const int64_t n = shape[axis];
    const Tensor indices = Indices(random, index_shape, -n, n - 1);
    const Doubles picks = Values(indices);
    const auto source = [&](const Index& index) {
      const auto pick = static_cast<int64_t>(picks[Flat(index_shape, index)]);
      Index from = index;
      from[axis] = pick < 0 ? pick + n : pick;
      return static_cast<int64_t>(Flat(shape, from));
    };
    const int64_t given = random.Coin() ? axis : axis - rank;
    const Tensor x = Whole(random, shape, AnyType(random));
    ExpectCopied(GatherElements(x, indices, given), x, index_shape, source);
    const Tensor dy = AnyTensor(random, index_shape, random.Coin() ? kFloat32 : kBFloat16);
    ExpectAdjoint(GatherElementsBackward(dy, shape, indices, given), dy, shape, source);
  }
}

/// Where slice `k` of GatherND begins in x, with the names of row k.
int64_t SliceStart(const Shape& shape, const Index& batch, const Doubles& names, size_t first,
                   int64_t count) {
  Index at = batch;
  for (int64_t j = 0; j < count; ++j) {
    const auto name = static_cast<int64_t>(names[first + static_cast<size_t>(j)]);
    const int64_t n = shape[static_cast<int>(at.size())];
    at.push_back(name < 0 ? name + n : name);
  }
  while (static_cast<int>(at.size()) < shape.rank()) at.push_back(0);
  return static_cast<int64_t>(Flat(shape, at));
}

TEST(GatherND, RandomSlicesAndBatches) {
  Random random(32);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 2, 5);
    const auto batch = static_cast<int>(random.Int(0, rank - 1));
    const int64_t count = random.Int(1, rank - batch);
    Shape names_shape;
    for (int i = 0; i < batch; ++i) names_shape.push_back(shape[i]);
    for (int64_t i = random.Int(0, 2); i > 0; --i) names_shape.push_back(random.Int(0, 4));
    Shape y_shape = names_shape;
    names_shape.push_back(count);
    const int axes = y_shape.rank();
    for (int i = batch + static_cast<int>(count); i < rank; ++i) y_shape.push_back(shape[i]);
    const Tensor indices = Indices(random, names_shape, -2, 1);
    const Doubles names = Values(indices);
    const auto source = [&](const Index& index) {
      Index row(index.begin(), index.begin() + axes);
      const Index own(index.begin(), index.begin() + batch);
      row.push_back(0);
      int64_t at = SliceStart(shape, own, names, Flat(names_shape, row), count);
      const Strides strides = ContiguousStrides(shape);
      for (int i = axes; i < y_shape.rank(); ++i)
        at += index[i] * strides[batch + static_cast<int>(count) + i - axes];
      return at;
    };
    const Tensor x = Whole(random, shape, AnyType(random));
    ExpectCopied(GatherND(x, indices, batch), x, y_shape, source);
    const Tensor dy = AnyTensor(random, y_shape);
    ExpectAdjoint(GatherNDBackward(dy, shape, indices, batch), dy, shape, source);
  }
}

TEST(ScatterND, EveryReduction) {
  Random random(33);
  const Shape shape{3, 4, 2};
  for (int round = 0; round < 120; ++round) {
    const auto reduction = static_cast<ScatterReduction>(round % 5);
    const int64_t count = random.Int(1, 3);
    const Shape names_shape{random.Int(0, 9), count};
    Shape picked{names_shape[0]};
    for (int i = static_cast<int>(count); i < 3; ++i) picked.push_back(shape[i]);
    const Tensor indices = Indices(random, names_shape, -2, 1);
    const DType dtype = round % 3 == 0 ? kInt64 : round % 3 == 1 ? kFloat32 : kUInt8;
    const auto small = [&](const Shape& of) {
      return AnyTensor(random, of, kFloat64, 0, 4).AsType(kInt32).AsType(dtype);
    };
    const Tensor x = small(shape), updates = small(picked);
    Doubles expected = Values(x);
    const Doubles names = Values(indices), us = Values(updates);
    const int64_t width = shape.Count(static_cast<int>(count), 3);
    for (int64_t k = 0; k < names_shape[0]; ++k) {
      const int64_t at = SliceStart(shape, {}, names, static_cast<size_t>(k * count), count);
      for (int64_t j = 0; j < width; ++j) {
        double& value = expected[static_cast<size_t>(at + j)];
        const double update = us[static_cast<size_t>(k * width + j)];
        switch (reduction) {
          case ScatterReduction::kNone:
            value = update;
            break;
          case ScatterReduction::kAdd:
            value += update;
            break;
          case ScatterReduction::kMul:
            value *= update;
            break;
          case ScatterReduction::kMax:
            value = std::max(value, update);
            break;
          default:
            value = std::min(value, update);
        }
        if (dtype == kUInt8) value = std::fmod(value, 256);
      }
    }
    const Tensor y = ScatterND(x, indices, updates, reduction);
    ASSERT_EQ(y.data_type(), dtype);
    ASSERT_EQ(Values(y), expected) << "round " << round;
  }
}

TEST(ScatterElements, GradientsOfReductions) {
  // Column 0: no update. Column 1: one zero among the factors. Column 2: two equal maxima.
  const Tensor x = FromValues({1, 3}, {5, 2, 3}), dy = FromValues({1, 3}, {10, 20, 30});
  const Tensor indices = FromValues({1, 4}, {1, 2, 1, 2}, kInt64);
  const Tensor updates = FromValues({1, 4}, {0, 3, 7, -1});
  const auto gradients = [&](ScatterReduction reduction) {
    const Tensor y = ScatterElements(x, indices, updates, 1, reduction);
    return ScatterElementsBackward(dy, indices, 1, reduction, x, updates, y);
  };
  auto got = gradients(ScatterReduction::kAdd);
  EXPECT_EQ(Values(got[0]), (Doubles{10, 20, 30}));
  EXPECT_EQ(Values(got[1]), (Doubles{20, 30, 20, 30}));
  got = gradients(ScatterReduction::kMul);
  EXPECT_EQ(Values(got[0]), (Doubles{10, 0, -90}));
  EXPECT_EQ(Values(got[1]), (Doubles{280, -90, 0, 270}));
  got = gradients(ScatterReduction::kMax);
  EXPECT_EQ(Values(got[0]), (Doubles{10, 0, 15}));
  EXPECT_EQ(Values(got[1]), (Doubles{0, 15, 20, 0}));
  got = gradients(ScatterReduction::kMin);
  EXPECT_EQ(Values(got[0]), (Doubles{10, 0, 0}));
  EXPECT_EQ(Values(got[1]), (Doubles{20, 0, 0, 30}));
}

TEST(GatherND, Errors) {
  const Tensor x({2, 3}), updates({1, 3});
  const Tensor row = FromValues({1, 1}, {2}, kInt64);
  ExpectError<std::out_of_range>([&] { GatherND(x, row); },
                                 "[GatherND] index 2 at position 0 is outside [-2, 2)");
  ExpectError<std::out_of_range>([&] { GatherElements(x, row, 0); }, "[GatherElements] index 2");
  ExpectError<std::out_of_range>([&] { ScatterND(x, row, updates); }, "[ScatterND] index 2");
  ExpectError<std::invalid_argument>(
      [&] {
        GatherND(x, Tensor({1, 3}, nullptr, kInt64));
      },
      "the last axis of indices (1, 3) must name 1 to 2 axes of "
      "x (2, 3) behind 0 common ones");
  ExpectError<std::invalid_argument>([&] { GatherND(x, row, 1); }, "behind 1 common ones");
  ExpectError<std::invalid_argument>([&] { GatherND(x, row, 2); }, "batch_dims 2");
  ExpectError<std::invalid_argument>([&] { ScatterND(x, row, x); },
                                     "[ScatterND] updates must have shape (1, 3), got (2, 3)");
  ExpectError<TypeError>(
      [&] { ScatterND(x.AsType(kBool), row, updates.AsType(kBool), ScatterReduction::kAdd); },
      "a reduction needs numbers");
  ExpectError<std::invalid_argument>(
      [&] { ScatterND(x, row, updates, static_cast<ScatterReduction>(7)); }, "unknown reduction 7");
  ExpectError<std::invalid_argument>([&] { ScatterNDBackward(x, row, ScatterReduction::kMul); },
                                     "[ScatterND] x is an empty");
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
  // Large enough for several pieces.
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
