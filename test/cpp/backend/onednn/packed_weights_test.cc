#include "model/dispatch/dispatch.h"
#include "model/operation/quantized/spec.h"
#include "support.h"

namespace singa::test {
namespace {

/// The plan of a convolution of bytes by oneDNN; null on processors without VNNI.
PlanPtr PlanOf(const QuantizedConvSpec& spec) {
  const Kernel* kernel = FindKernel<QuantizedConvSpec>("onednn");
  return kernel ? kernel->Make(spec).plan() : nullptr;
}

TEST(PackedWeights, GoBackToWhatTheyWere) {
  Random random(1);
  for (const int64_t group : {1, 2})
    for (const int64_t channels : {4, 6, 16, 40})
      for (const DType type : {kUInt8, kInt8}) {
        QuantizedConvSpec spec;
        spec.geometry = ConvRecorder("Conv", {1, group * channels, 7, 6}, {3, 3}, {1, 1}, {1, 1},
                                     group * 6, false, {}, group);
        spec.x_type = type;
        spec.has_x_zero = random.Coin();
        const PlanPtr plan = PlanOf(spec);
        if (!plan) GTEST_SKIP() << "this processor has no AVX-512 VNNI";
        const LayoutPtr layout = plan->input_layout(1);
        ASSERT_TRUE(layout);
        const Shape shape = spec.geometry.weight_shape();
        Vector values(static_cast<size_t>(shape.Count()));
        for (double& v : values) v = static_cast<double>(random.Int(-128, 127));
        const Tensor packed = FromValues(shape, values, kInt8).ToLayout(layout);
        ASSERT_EQ(Values(packed.Clone()), values) << layout->ToString();
        EXPECT_TRUE(layout->Equals(*PlanOf(spec)->input_layout(1)));
      }
}

}  // namespace
}  // namespace singa::test
