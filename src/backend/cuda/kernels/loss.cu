// Softmax cross-entropy: each warp takes rows, then one block adds the rows' losses.

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/positions.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/loss/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpThreads;
/// Maximum number of blocks in forward. Each warp stores one partial loss.
constexpr unsigned kMostBlocks = 1024;

struct Larger {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return b > a ? b : a;
  }
};

/// Targets of all rows: (1 − s)·t + s / C, where t is a given probability, or 1 for the row's
/// class.
template <class C>
struct Targets {
  const void* t;
  DType dtype;  ///< type of the classes; probabilities have type C
  bool classes_given;
  int64_t classes;
  C keep, floor;
  Fault* fault;

  /// The class of a row; 0, with a fault, if it is invalid. Every lane may call it.
  __device__ int64_t Label(int64_t row) const {
    if (!classes_given) return -1;
    return ReadPosition(t, dtype, row, classes, false, fault);
  }
  __device__ C At(int64_t row, int64_t label, int64_t c) const {
    const C own =
        classes_given ? static_cast<C>(c == label) : static_cast<const C*>(t)[row * classes + c];
    return floor + keep * own;
  }
};

template <class C>
Targets<C> TargetsOf(const char* op, TargetKind kind, const Tensor& t, int64_t classes,
                     double smoothing) {
  return {t.raw_data(),
          t.data_type(),
          kind == TargetKind::kClasses,
          classes,
          static_cast<C>(1 - smoothing),
          static_cast<C>(smoothing / static_cast<double>(classes)),
          FaultOf(op)};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    ForwardRows(const T* x, Targets<ComputeType<T>> targets, int64_t rows, T* p, double* losses) {
  using C = ComputeType<T>;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpThreads;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  const int lane = threadIdx.x % kWarpThreads;
  const int64_t classes = targets.classes;
  double lost = 0;
  for (int64_t row = warp; row < rows; row += warps) {  // one row for the whole warp
    const T* score = x + row * classes;
    T* probability = p + row * classes;
    // Starts with the first score, as the CPU does, so that a NaN there is kept.
    C largest = Cast<C>(score[0]);
    for (int64_t c = lane; c < classes; c += kWarpThreads)
      largest = Larger()(largest, Cast<C>(score[c]));
    largest = JoinWarp(largest, Larger());
    double sum = 0;
    for (int64_t c = lane; c < classes; c += kWarpThreads)
      sum += static_cast<double>(std::exp(Cast<C>(score[c]) - largest));
    sum = JoinWarp(sum, Plus());
    const C scale = static_cast<C>(1 / sum);
    const double log_sum = std::log(sum);
    const int64_t label = targets.Label(row);
    double loss = 0;
    for (int64_t c = lane; c < classes; c += kWarpThreads) {
      const C shifted = Cast<C>(score[c]) - largest;
      probability[c] = Cast<T>(std::exp(shifted) * scale);
      const C q = targets.At(row, label, c);
      // A class with target 0 adds nothing, even if its score is -infinity.
      if (q != C(0)) loss += static_cast<double>(q) * (log_sum - static_cast<double>(shifted));
    }
    lost += JoinWarp(loss, Plus());
  }
  if (lane == 0 && warp < rows) losses[warp] = lost;
}

/// out = factor · Σ terms. One block, so that the order of the sum is fixed.
__global__ void __launch_bounds__(kThreads)
    SumTerms(const double* terms, int64_t count, double factor, void* out, DType dtype) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += terms[i];
  sum = SumBlock(sum);
  if (threadIdx.x == 0) StoreAs(sum * factor, out, dtype, 0);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    BackwardRows(const void* dy, DType dy_dtype, const T* p, Targets<ComputeType<T>> targets,
                 int64_t rows, T* dx) {
  using C = ComputeType<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpThreads;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarpThreads;
  const int64_t classes = targets.classes;
  const C slope = static_cast<C>(LoadAs<double>(dy, dy_dtype, 0) / static_cast<double>(rows));
  const int64_t label = targets.Label(row);
  // Given target probabilities need not sum to 1.
  C total = 1;
  if (!targets.classes_given) {
    double sum = 0;
    for (int64_t c = lane; c < classes; c += kWarpThreads)
      sum += static_cast<double>(targets.At(row, label, c));
    total = static_cast<C>(JoinWarp(sum, Plus()));
  }
  for (int64_t c = lane; c < classes; c += kWarpThreads) {
    const int64_t i = row * classes + c;
    dx[i] = Cast<T>(slope * (Cast<C>(p[i]) * total - targets.At(row, label, c)));
  }
}

unsigned RowBlocks(int64_t rows) { return static_cast<unsigned>((rows + kWarps - 1) / kWarps); }

size_t ForwardWorkspace(const SoftmaxCrossEntropySpec&) {
  return size_t{kMostBlocks} * kWarps * sizeof(double);
}

void RunForward(const SoftmaxCrossEntropySpec& spec, const Execution& execution) {
  const Shape& shape = execution.inputs[0].shape();
  const Stream stream = StreamOf(execution.device);
  const unsigned blocks = std::min(RowBlocks(shape[0]), kMostBlocks);
  auto* losses = static_cast<double*>(execution.workspace);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    Launch(ForwardRows<T>, blocks, kThreads, stream, execution.in<T>(0),
           TargetsOf<ComputeType<T>>(spec.op(), spec.target, execution.inputs[1], shape[1],
                                     execution.scalars.v[0]),
           shape[0], execution.out<T>(1), losses);
  });
  const Tensor& loss = execution.outputs[0];
  Launch(SumTerms, 1, kThreads, stream, losses, std::min(shape[0], int64_t{blocks} * kWarps),
         1 / static_cast<double>(shape[0]), loss.raw_data(), loss.data_type());
}

void RunBackward(const SoftmaxCrossEntropyBackwardSpec& spec, const Execution& execution) {
  const Shape& shape = execution.inputs[1].shape();
  const Tensor& dy = execution.inputs[0];
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    Launch(BackwardRows<T>, RowBlocks(shape[0]), kThreads, StreamOf(execution.device),
           dy.raw_data(), dy.data_type(), execution.in<T>(1),
           TargetsOf<ComputeType<T>>(spec.op(), spec.target, execution.inputs[2], shape[1],
                                     execution.scalars.v[0]),
           shape[0], execution.out<T>(0));
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<SoftmaxCrossEntropySpec, RunForward, ForwardWorkspace>();
  RegisterKernels<SoftmaxCrossEntropyBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
