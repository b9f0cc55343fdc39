#include <memory>

#include "conv_naive.h"
#include "singa/core/device.h"
#include "singa/operation/conv.h"
#include "support.h"

namespace singa::test {
namespace {

using ConvTransposeTest = EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, ConvTransposeTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return PreferenceName(info.param); });

TEST_P(ConvTransposeTest, ByHand) {
  // Each pixel adds a copy of the kernel; two copies overlap by one column.
  const Tensor x = FromValues({1, 1, 1, 2}, {1, 10}), w = FromValues({1, 1, 1, 3}, {1, 2, 3});
  const ConvTransposeHandle handle(x, {1, 3}, {1, 2}, {0, 0}, {0, 1}, 1, 1);
  EXPECT_EQ(Values(ConvTransposeForward(x, w, FromValues({1}, {100}), handle)),
            (Vector{101, 102, 113, 120, 130, 100}));
}

TEST_P(ConvTransposeTest, OutputPaddingBelowTheDilation) {
  // One element of it takes the place of padding, the other has the bias alone.
  const Tensor x = FromValues({1, 1, 2}, {1, 10}), w = FromValues({1, 1, 2}, {1, 2});
  const Tensor b = FromValues({1}, {100});
  const ConvTransposeHandle handle(x, {2}, {1}, {1}, {2}, 1, 1, true, 1, {3});
  const Tensor y = ConvTransposeForward(x, w, b, handle);
  EXPECT_EQ(Values(y), (Vector{110, 100, 102, 120, 100}));
  const Tensor dy = FromValues({1, 1, 5}, {1, 2, 3, 4, 5});
  const std::vector<Tensor> gradients = ConvTransposeBackward(dy, x, w, handle, true, true, true);
  EXPECT_EQ(Values(gradients[0]), (Vector{6, 9}));
  EXPECT_EQ(Values(gradients[1]), (Vector{10, 43}));
  EXPECT_EQ(Values(gradients[2]), (Vector{15}));
}

TEST_P(ConvTransposeTest, OneHandleServesEveryInputSizeAndNone) {
  Random random(2);
  const ConvTransposeHandle handle(Tensor({4, 5, 6, 6}), {3, 3}, {2, 2}, {1, 1}, {1, 1}, 5, 7);
  EXPECT_EQ(handle.recorder.input_shape(), Shape({4, 7, 12, 12}));
  const Tensor w = AnyTensor(random, {5, 7, 3, 3});
  const Tensor y = ConvTransposeForward(AnyTensor(random, {1, 5, 3, 9}), w, Tensor(), handle);
  EXPECT_EQ(y.shape(), Shape({1, 7, 6, 18}));
  const Tensor none({0, 5, 6, 6}), dy({0, 7, 12, 12});
  EXPECT_EQ(ConvTransposeForward(none, w, Tensor(), handle).shape(), Shape({0, 7, 12, 12}));
  const std::vector<Tensor> gradients =
      ConvTransposeBackward(dy, none, w, handle, true, true, true);
  EXPECT_EQ(gradients[0].shape(), none.shape());
  EXPECT_EQ(Values(gradients[1]), Vector(5 * 7 * 9, 0.0));
  EXPECT_EQ(Values(gradients[2]), Vector(7, 0.0));
}

}  // namespace
}  // namespace singa::test
