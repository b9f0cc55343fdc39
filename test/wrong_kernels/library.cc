// libsinga_wrong_kernels.so, for Python tests: wrong kernels for the Specs of all operations.

#include <cstring>

#include "model/operation/attention/rotary_spec.h"
#include "model/operation/attention/spec.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/channel_scale/spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/conv/spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/indexing/gather_spec.h"
#include "model/operation/indexing/scatter_spec.h"
#include "model/operation/indexing/spec.h"
#include "model/operation/interpolate/spec.h"
#include "model/operation/layout/axis_map_spec.h"
#include "model/operation/linalg/spec.h"
#include "model/operation/loss/spec.h"
#include "model/operation/lrn/spec.h"
#include "model/operation/norm/spec.h"
#include "model/operation/optimizer/spec.h"
#include "model/operation/pooling/spec.h"
#include "model/operation/quantized/spec.h"
#include "model/operation/random/spec.h"
#include "model/operation/reduce/spec.h"
#include "model/operation/rnn/spec.h"
#include "model/operation/softmax/spec.h"
#include "model/operation/sort/spec.h"
#include "wrong_kernel.h"

namespace singa::test {
namespace {

/// Adds a wrong kernel for the Specs with this type name; "" means all.
template <class... Specs>
int AddTo(const char* spec, Wrong wrong) {
  int added = 0;
  const auto add = [&]<class Spec>(std::type_identity<Spec>) {
    // "N5singa8ConvSpecE"
    const std::string name = std::string(spec) + "E";
    const std::string mangled = typeid(Spec).name();
    const bool named = mangled.ends_with(std::to_string(std::strlen(spec)) + name);
    if (*spec != '\0' && !named) return;
    AddWrongKernel<Spec>(wrong);
    ++added;
  };
  (add(std::type_identity<Specs>()), ...);
  return added;
}

}  // namespace
}  // namespace singa::test

/// Adds a wrong kernel for the Spec with this name, such as "ConvSpec" ("" means all). `wrong` is a
/// Wrong. Returns the number of kernels. Must be called before the first plan is made.
extern "C" __attribute__((visibility("default"))) int singa_add_wrong_kernels(const char* spec,
                                                                              int wrong) {
  using namespace singa;
  return test::AddTo<
      ArgReduceSpec, AttentionBackwardSpec, AttentionForwardSpec, AxisMapBackwardSpec, AxisMapSpec,
      AxpySpec, BatchNormBackwardSpec, BatchNormForwardSpec, BatchNormStatisticsSpec,
      BinaryBackwardSpec, BinarySpec, ChannelScaleBackwardSpec, ChannelScaleSpec, ConcatSpec,
      ConvSpec, ConvTransposeSpec, CountNonZeroSpec, CountTopKSpec, CumSumSpec, DropoutBackwardSpec,
      DropoutSpec, FoldBatchNormSpec, GatherBackwardSpec, GatherSpec, InterpolateBackwardSpec,
      InterpolateSpec, LossScaleSpec, LrnBackwardSpec, LrnForwardSpec, MatMulSpec, NonZeroSpec,
      NormBackwardSpec, NormConvSpec, NormForwardSpec, OneHotSpec, OptimizerSpec,
      PairLossBackwardSpec, PairLossSpec, PoolingBackwardSpec, PoolingForwardSpec, PositionsSpec,
      QuantizedConvSpec, QuantizedMatMulSpec, QuantizedSumSpec, RandomSpec, ReduceBackwardSpec,
      ReduceSpec, RnnBackwardSpec, RnnForwardSpec, RotaryBackwardSpec, RotarySpec,
      ScatterBackwardSpec, ScatterSpec, SliceBackwardSpec, SoftmaxBackwardSpec,
      SoftmaxCrossEntropyBackwardSpec, SoftmaxCrossEntropySpec, SoftmaxSpec, SplitSpec,
      SumSquareSpec, TopKSpec, UnaryBackwardSpec, UnarySpec, WhereSpec>(
      spec, static_cast<test::Wrong>(wrong));
}
