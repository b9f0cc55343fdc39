// Losses over pairs of elements: enough blocks to fill a GPU compute partial sums, and one block
// adds them. The terms are in model/formula/pair_loss.h.

#include "model/formula/pair_loss.h"

#include <algorithm>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/map.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/formula/switch_operation.h"
#include "model/operation/loss/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

__global__ void __launch_bounds__(kThreads)
    SumPairs(PairLoss kind, const void* x, DType x_dtype, const void* t, DType t_dtype,
             int64_t size, double margin, double* partial) {
  double sum = 0;
  for (int64_t i = FirstElement(); i < size; i += ElementStep())
    sum += formula::PairTerm(kind, LoadAs<double>(x, x_dtype, i), LoadAs<double>(t, t_dtype, i),
                             margin);
  sum = SumBlock(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    SumPartial(const double* partial, int64_t count, double factor, void* out, DType dtype) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = SumBlock(sum);
  if (threadIdx.x == 0) StoreAs(sum * factor, out, dtype, 0);
}

size_t Workspace(const PairLossSpec&) { return kMostBlocks * sizeof(double); }

void Run(const PairLossSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& x = execution.inputs[0];
  const Tensor& t = execution.inputs[1];
  const Tensor& loss = execution.outputs[0];
  auto* partial = static_cast<double*>(execution.workspace);
  const int64_t blocks = std::min<int64_t>(kMostBlocks, (x.size() + kThreads - 1) / kThreads);
  Launch(SumPairs, static_cast<unsigned>(blocks), kThreads, stream, spec.kind, x.raw_data(),
         x.data_type(), t.raw_data(), t.data_type(), x.size(), execution.scalars.v[1], partial);
  Launch(SumPartial, 1, kThreads, stream, partial, blocks, execution.scalars.v[0], loss.raw_data(),
         loss.data_type());
}

template <PairLoss kKind, class C>
struct Gradient {
  const void* dy;
  DType dy_dtype;
  double scale;
  C margin;
  __device__ C operator()(C x, C t) const {
    const C slope = static_cast<C>(LoadAs<double>(dy, dy_dtype, 0) * scale);
    return formula::PairGradient(kKind, slope, x, t, margin);
  }
};

template <class C>
void MapGradient(const PairLossBackwardSpec& spec, const Execution& execution) {
  const Tensor& dy = execution.inputs[0];
  formula::SwitchOperation(spec.kind, [&]<PairLoss kKind>() {
    Map<2, C>(execution.inputs.subspan(1), execution.outputs[0], StreamOf(execution.device),
              Gradient<kKind, C>{dy.raw_data(), dy.data_type(), execution.scalars.v[0],
                                 static_cast<C>(execution.scalars.v[1])});
  });
}

void RunBackward(const PairLossBackwardSpec& spec, const Execution& execution) {
  spec.dtype == kFloat64 ? MapGradient<double>(spec, execution)
                         : MapGradient<float>(spec, execution);
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<PairLossSpec, Run, Workspace>();
  RegisterKernels<PairLossBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
