#include "singa/operation/rotary.h"

#include "support.h"

namespace singa::test {
namespace {

TEST(Rotary, NothingToDo) {
  Random random(42);
  for (const Shape& shape : {Shape{0, 2, 3, 4}, {2, 0, 3, 4}, {2, 2, 0, 4}, {2, 2, 3, 0}}) {
    const Tensor x = RandomTensor(random, shape);
    const Tensor table({shape[2], shape[3] / 2});
    EXPECT_EQ(Rotary(x, table, table).shape(), shape);
  }
}

}  // namespace
}  // namespace singa::test
