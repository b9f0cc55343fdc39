// libsinga_wrong_kernels.so, for Python tests: wrong kernels for the Specs of all operations.

#include <cstring>

#include "model/spec/attention.h"
#include "model/spec/axis_map.h"
#include "model/spec/elementwise.h"
#include "model/spec/gather.h"
#include "model/spec/indexing.h"
#include "model/spec/loss.h"
#include "model/spec/matmul.h"
#include "model/spec/norm/batchnorm.h"
#include "model/spec/norm/channel_scale.h"
#include "model/spec/norm/lrn.h"
#include "model/spec/norm/norm.h"
#include "model/spec/optimizer.h"
#include "model/spec/quantized.h"
#include "model/spec/random.h"
#include "model/spec/reduce.h"
#include "model/spec/rnn.h"
#include "model/spec/rotary.h"
#include "model/spec/scatter.h"
#include "model/spec/softmax.h"
#include "model/spec/sort.h"
#include "model/spec/spatial/conv.h"
#include "model/spec/spatial/interpolate.h"
#include "model/spec/spatial/norm_conv.h"
#include "model/spec/spatial/pooling.h"
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
