#include "singa/operation/embedding.h"

#include "singa/core/threads.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::ExpectError;
using test::FromValues;
using test::Random;
using test::RandomTensor;
using test::Values;

constexpr DType kIndexTypes[] = {kInt32, kInt64, kFloat32};
constexpr DType kFloats[] = {kFloat32, kFloat64, kBFloat16, kFloat16};

Tensor RandomIndices(Random& random, const Shape& shape, int64_t vocabulary, DType dtype) {
  std::vector<double> values(shape.Count());
  for (double& v : values) v = static_cast<double>(random.Int(0, vocabulary - 1));
  return FromValues(shape, values, dtype);
}

TEST(Embedding, RandomShapesForwardAndBackward) {
  Random random(31);
  for (int round = 0; round < 250; ++round) {
    const int64_t vocabulary = random.Int(1, 20), width = random.Int(1, round % 9 == 0 ? 300 : 12);
    const Shape shape = random.Dims(static_cast<int>(random.Int(0, 3)), 0, 6);
    const DType dtype = kFloats[random.Int(0, 3)];
    const Tensor x = RandomIndices(random, shape, vocabulary, kIndexTypes[random.Int(0, 2)]);
    const Tensor w = AnyTensor(random, {vocabulary, width}, dtype);
    const Tensor y = EmbeddingForward(x, w);
    Shape y_shape = shape;
    y_shape.push_back(width);
    ASSERT_EQ(y.shape(), y_shape);
    ASSERT_EQ(y.data_type(), dtype);
    const Tensor dy = AnyTensor(random, y_shape, dtype);
    const Tensor dw = EmbeddingBackward(dy, x, w.shape());
    ASSERT_EQ(dw.shape(), w.shape());
    const auto xs = Values(x), ws = Values(w), ys = Values(y), dys = Values(dy), dws = Values(dw);
    std::vector<double> sum(ws.size(), 0), magnitude(ws.size(), 0);
    for (size_t i = 0; i < xs.size(); ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const auto row = static_cast<int64_t>(xs[i]) * width + j;
        ASSERT_EQ(ys[i * width + j], ws[row]);
        sum[row] += dys[i * width + j];
        magnitude[row] += std::abs(dys[i * width + j]);
      }
    }
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(dws[i], sum[i], test::Epsilon(dtype) * magnitude[i]);
  }
}

TEST(Embedding, BackwardHasTheSameBitsForAnyNumberOfThreads) {
  Random random(32);
  const int before = NumThreads();
  for (const int64_t width : {40, 256}) {
    const Tensor x = RandomIndices(random, {3000}, 11, kInt64);
    const Tensor dy = RandomTensor(random, {3000, width}, kFloat64);
    SetNumThreads(1);
    const auto one = Values(EmbeddingBackward(dy, x, {11, width}));
    for (const int threads : {2, 5}) {
      SetNumThreads(threads);
      EXPECT_EQ(Values(EmbeddingBackward(dy, x, {11, width})), one);
    }
  }
  SetNumThreads(before);
}

TEST(Embedding, Errors) {
  const Tensor w({4, 3});
  const auto at = [](double value, DType dtype = kInt32) {
    return FromValues({1}, {value}, dtype);
  };
  ExpectError<std::out_of_range>([&] { EmbeddingForward(at(4), w); },
                                 "[EmbeddingForward] index 4 at position 0 is outside [0, 4)");
  ExpectError<std::out_of_range>([&] { EmbeddingForward(at(-1), w); }, "index -1");
  ExpectError<std::out_of_range>([&] { EmbeddingForward(at(1e30, kFloat32), w); }, "[0, 4)");
  ExpectError<std::invalid_argument>([&] { EmbeddingForward(at(1.5, kFloat32), w); },
                                     "index 1.5 at position 0 is not a whole number");
  ExpectError<TypeError>([&] { EmbeddingForward(at(1, kBool), w); }, "integers or floats");
  ExpectError<std::invalid_argument>([&] { EmbeddingForward(at(1), Tensor({4})); },
                                     "W must be (vocabulary, width), got");
  ExpectError<std::invalid_argument>([&] { EmbeddingForward(Tensor(), w); }, "x is an empty");
  ExpectError<std::invalid_argument>([&] { EmbeddingForward(at(1), Tensor()); }, "W is an empty");
  ExpectError<std::invalid_argument>(
      [&] {
        EmbeddingBackward(w, at(1), {4, 3});
      },
      "[EmbeddingBackward] dy must have shape (1, 3), got");
  ExpectError<std::out_of_range>(
      [&] {
        EmbeddingBackward(Tensor({1, 3}), at(9), {4, 3});
      },
      "[EmbeddingBackward] index 9");
  ExpectError<std::invalid_argument>(
      [&] {
        EmbeddingBackward(Tensor({1, 3}), at(1), {4});
      },
      "W must be (vocabulary, width)");
  ExpectError<TypeError>(
      [&] {
        EmbeddingBackward(Full({1, 3}, 1, nullptr, kInt32), at(1), {4, 3});
      },
      "float type");
  EXPECT_EQ(EmbeddingForward(Tensor({0}, nullptr, kInt32), w).shape(), Shape({0, 3}));
}

}  // namespace
}  // namespace singa
