// What Call does where it cannot make the call.

#include <gtest/gtest.h>

#include "singa/operation/conv.h"
#include "singa/operation/indexing.h"
#include "support.h"

namespace singa::test {
namespace {

TEST(Call, NamesTheArgumentThatIsWrong) {
  const Tensor image = Full({1, 8, 2, 2}, 0);
  const ConvHandle handle(image, {1, 1}, {1, 1}, {0, 0}, 8, 8, false);
  ExpectError<std::invalid_argument>(
      [&] {
        ConvBackwardX(image, Full({8, 4, 1, 1}, 0), handle);
      },
      "[ConvBackwardX] W must have shape (8, 8, 1, 1), got (8, 4");
  ExpectError<TypeError>(
      [&] {
        ConvBackwardX(image, Full({8, 8, 1, 1}, 0, nullptr, kFloat64), handle);
      },
      "[ConvBackwardX] W must have the type of dy, float32, got");
  ExpectError<std::invalid_argument>([&] { ConvBackwardX(image, Tensor(), handle); },
                                     "[ConvBackwardX] W is an empty tensor (None)");
}

TEST(Call, SaysWhereThereIsNoMemoryForTheResult) {
  const Tensor indices = FromValues({1}, {0}, kInt32);
  ExpectError<OutOfMemory>([&] { OneHot(indices, int64_t{1} << 46, 0, 1, 1, kFloat32); },
                           "a tensor of (1, 70368744177664) float32");
}

}  // namespace
}  // namespace singa::test
