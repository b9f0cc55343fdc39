// The activations behind batch norm, against their definitions in float64.

#include <algorithm>
#include <stdexcept>

#include "model/operation/activation.h"
#include "model/operation/batchnorm/batchnorm_naive.h"
#include "singa/core/device.h"
#include "singa/operation/batchnorm.h"
#include "support.h"

namespace singa::test {
namespace {

constexpr Activation kClipped(ActivationKind::kClip, -0.5, 0.75);

TEST(BatchNorm, RefusesActivations) {
  const Tensor x = Full({2, 3, 2, 2}, 1), one = Full({3}, 1);
  const BatchNormHandle handle(0.1, x);
  const auto forward = [&](const Activation& activation, const Tensor& add = Tensor()) {
    return [&, activation, add] {
      BatchNormForwardInference(handle, x, one, one, one, one, add, activation);
    };
  };
  ExpectError<std::invalid_argument>(
      forward(ActivationKind::kSilu, x),
      "[BatchNormForwardInference] the activation behind an addition must be ReLU or none");
  ExpectError<std::invalid_argument>(forward({ActivationKind::kClip, 2, 1}),
                                     "in order, got 2 and 1");
  ExpectError<std::invalid_argument>(forward({ActivationKind::kClip, std::nan(""), 1}),
                                     "in order, got nan and 1");
  ExpectError<std::invalid_argument>(forward({ActivationKind::kRelu, 0, 1}),
                                     "only a clip has limits, got 0 and 1");
  ExpectError<std::invalid_argument>(forward(static_cast<ActivationKind>(9)),
                                     "activation must be in [0, 5), got 9");
  EXPECT_ERROR(std::invalid_argument,
               "[BatchNormBackward] the activation behind an addition must be ReLU or none",
               BatchNormBackward(handle, x, x, one, one, one, true, true, ActivationKind::kSilu,
                                 one, x, true));
}

}  // namespace
}  // namespace singa::test
