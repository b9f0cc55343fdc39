#include "singa/operation/embedding.h"

#include "singa/core/threads.h"
#include "support.h"

namespace singa::test {
namespace {

Tensor RandomIndices(Random& random, const Shape& shape, int64_t vocabulary, DType dtype) {
  std::vector<double> values(shape.Count());
  for (double& v : values) v = static_cast<double>(random.Int(0, vocabulary - 1));
  return FromValues(shape, values, dtype);
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

}  // namespace
}  // namespace singa::test
