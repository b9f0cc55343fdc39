// What Call does where it cannot make the call.

#include "singa/operation/conv.h"
#include "singa/operation/indexing.h"
#include "support.h"

namespace singa::test {
namespace {

TEST(Call, NamesTheArgumentThatIsWrong) {
  const Tensor image = Full({1, 8, 2, 2}, 0);
  const ConvHandle handle(image, {1, 1}, {1, 1}, {0, 0}, 8, 8, false);
  EXPECT_ERROR(std::invalid_argument, "[ConvBackwardX] W must have shape (8, 8, 1, 1), got (8, 4",
               ConvBackwardX(image, Full({8, 4, 1, 1}, 0), handle));
  EXPECT_ERROR(TypeError, "[ConvBackwardX] W must have the type of dy, float32, got",
               ConvBackwardX(image, Full({8, 8, 1, 1}, 0, nullptr, kFloat64), handle));
  EXPECT_ERROR(std::invalid_argument, "[ConvBackwardX] W is an empty tensor (None)",
               ConvBackwardX(image, Tensor(), handle));
}

TEST(Call, SaysWhereThereIsNoMemoryForTheResult) {
  const Tensor indices = FromValues({1}, {0}, kInt32);
  EXPECT_ERROR(OutOfMemory, "a tensor of (1, 70368744177664) float32",
               OneHot(indices, int64_t{1} << 46, 0, 1, 1, kFloat32));
}

}  // namespace
}  // namespace singa::test
