// libsinga_wrong_kernels.so, which Python's tests load: wrong kernels for the Specs of all
// operations.

#include <cstring>

#include "model/operation/axis_map_spec.h"
#include "model/operation/batchnorm_spec.h"
#include "model/operation/conv_spec.h"
#include "model/operation/elementwise_spec.h"
#include "model/operation/gather_spec.h"
#include "model/operation/indexing_spec.h"
#include "model/operation/loss_spec.h"
#include "model/operation/lrn_spec.h"
#include "model/operation/matmul_spec.h"
#include "model/operation/optimizer_spec.h"
#include "model/operation/pooling_spec.h"
#include "model/operation/random_spec.h"
#include "model/operation/reduce_spec.h"
#include "model/operation/rnn_spec.h"
#include "model/operation/softmax_spec.h"
#include "wrong_kernel.h"

namespace singa::test {
namespace {

/// Those whose type's name this is; "": all.
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

/// Adds a wrong kernel for the Spec of this name, such as "ConvSpec" (""; all of them). `wrong` is
/// a Wrong. Returns how many. Before the first plan is made.
extern "C" __attribute__((visibility("default"))) int singa_add_wrong_kernels(const char* spec,
                                                                              int wrong) {
  using namespace singa;
  return test::AddTo<ArgReduceSpec, AxisMapBackwardSpec, AxisMapSpec, AxpySpec,
                     BatchNormBackwardSpec, BatchNormForwardSpec, BinaryBackwardSpec, BinarySpec,
                     ConcatSpec, ConvSpec, ConvTransposeSpec, CountNonZeroSpec, CountTopKSpec,
                     DropoutBackwardSpec, DropoutSpec, FoldBatchNormSpec, GatherBackwardSpec,
                     GatherSpec, LossScaleSpec, LrnBackwardSpec, LrnForwardSpec, MatMulSpec,
                     NonZeroSpec, OneHotSpec, OptimizerSpec, PairLossBackwardSpec, PairLossSpec,
                     PoolingBackwardSpec, PoolingForwardSpec, RandomSpec, ReduceBackwardSpec,
                     ReduceSpec, RnnBackwardSpec, RnnForwardSpec, ScatterElementsBackwardSpec,
                     ScatterElementsSpec, SliceBackwardSpec, SoftmaxBackwardSpec,
                     SoftmaxCrossEntropyBackwardSpec, SoftmaxCrossEntropySpec, SoftmaxSpec,
                     SplitSpec, SumSquareSpec, UnaryBackwardSpec, UnarySpec, WhereSpec>(
      spec, static_cast<test::Wrong>(wrong));
}
