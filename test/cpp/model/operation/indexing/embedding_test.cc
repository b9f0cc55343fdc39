#include "singa/operation/embedding.h"

#include "support.h"

namespace singa::test {
namespace {

Tensor RandomIndices(Random& random, const Shape& shape, int64_t vocabulary, DType dtype) {
  Vector values(shape.Count());
  for (double& v : values) v = static_cast<double>(random.Int(0, vocabulary - 1));
  return FromValues(shape, values, dtype);
}

TEST(Embedding, BackwardHasTheSameBitsForAnyNumberOfThreads) {
  Random random(32);
  for (const int64_t width : {40, 256}) {
    const Tensor x = RandomIndices(random, {3000}, 11, kInt64);
    const Tensor dy = RandomTensor(random, {3000, width}, kFloat64);
    SameOnThreads({2, 5}, [&] { return Values(EmbeddingBackward(dy, x, {11, width})); });
  }
}

}  // namespace
}  // namespace singa::test
