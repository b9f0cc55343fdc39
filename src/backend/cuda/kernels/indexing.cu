// Concatenation and splitting, gradients of slices, one-hot vectors, and positions of nonzero
// elements.

#include <algorithm>

#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/image_plan.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/positions.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/copy.h"
#include "model/operation/indexing/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// A strided view of a tensor in any layout, starting at a position along an axis.
struct Part {
  Strides strides;
  char* data;

  Part(const Tensor& t, bool channels_last, int axis = 0, int64_t start = 0)
      : strides(StridesOf(t, channels_last)), data(static_cast<char*>(t.raw_data())) {
    data += start * strides[axis] * static_cast<int64_t>(SizeOf(t.data_type()));
  }
};

void MovePart(const Part& from, const Part& to, const Shape& shape, DType dtype, Stream stream) {
  QueueMove(from.data, to.data, StridedSpace<2>(shape, {to.strides, from.strides}), SizeOf(dtype),
            stream);
}

void RunConcat(const ConcatSpec& spec, const Execution& execution) {
  const bool last = spec.x_layout != nullptr;
  int64_t start = 0;
  for (const Tensor& x : execution.inputs) {
    MovePart(Part(x, last), Part(execution.outputs[0], last, spec.axis, start), x.shape(),
             spec.dtype, StreamOf(execution.device));
    start += x.shape()[spec.axis];
  }
}

ImageLayouts ConcatLayouts(const ConcatSpec& spec) {
  return {{}, {ImageLayout(spec.x_layout != nullptr, spec.y_shape, spec.dtype)}};
}

void RunSplit(const SplitSpec& spec, const Execution& execution) {
  const bool last = spec.x_layout != nullptr;
  MovePart(Part(execution.inputs[0], last, spec.axis, spec.start), Part(execution.outputs[0], last),
           spec.OutShape(), spec.dtype, StreamOf(execution.device));
}

ImageLayouts SplitLayouts(const SplitSpec& spec) {
  const bool last = spec.x_layout != nullptr;
  return {{ImageLayout(last, spec.x_shape, spec.dtype)},
          {ImageLayout(last, spec.OutShape(), spec.dtype)}};
}

void RunSliceBackward(const SliceBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& dy = execution.inputs[0];
  const Tensor& dx = execution.outputs[0];
  QueueFill(dx, 0, stream);
  QueueCopy(dy,
            Tensor(dx.block(), dy.shape(), spec.strides, dx.offset() + spec.offset, dx.data_type()),
            stream);
}

// ---- OneHot

template <class T>
__global__ void __launch_bounds__(kThreads)
    OneHot(const void* indices, DType dtype, int64_t depth, int64_t inner, T off, T on,
           Fault* fault, T* y, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t line = i / inner, d = line % depth;
    int64_t value;
    const bool whole =
        ReadIndex(indices, dtype, line / depth * inner + i % inner, fault, -depth, depth, &value);
    y[i] = whole && (value == d || value + depth == d) ? on : off;
  }
}

void RunOneHot(const OneHotSpec& spec, const Execution& execution) {
  const Tensor& indices = execution.inputs[0];
  const int64_t size = spec.outer * spec.depth * spec.inner;
  const auto& v = execution.scalars.v;
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(OneHot<T>, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
                      indices.raw_data(), indices.data_type(), spec.depth, spec.inner,
                      Convert<T>(v[0]), Convert<T>(v[1]), FaultOf(spec.op()), execution.out<T>(0),
                      size);
  });
}

// ---- NonZero, with one block per piece

template <class T>
__global__ void __launch_bounds__(kThreads)
    CountNonZero(const T* x, int64_t size, int64_t* counts) {
  const int64_t begin = blockIdx.x * kNonZeroPiece;
  const int64_t end = begin + kNonZeroPiece < size ? begin + kNonZeroPiece : size;
  int64_t count = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) count += Convert<bool>(x[i]);
  count = SumBlock(count);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

struct Lengths {
  int rank;
  int64_t length[kMaxRank];
};

template <class T>
__global__ void __launch_bounds__(kThreads) NonZero(const T* x, int64_t size, const int64_t* before,
                                                    Lengths shape, int64_t total, int64_t* y) {
  constexpr int kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(int, kWarps, of_warp);
  const unsigned lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int64_t begin = blockIdx.x * kNonZeroPiece;
  const int64_t end = begin + kNonZeroPiece < size ? begin + kNonZeroPiece : size;
  int64_t column = before[blockIdx.x];
  for (int64_t first = begin; first < end; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    const bool found = i < end && Convert<bool>(x[i]);
    const unsigned votes = __ballot_sync(kAllLanes, found);
    if (lane == 0) of_warp[warp] = __popc(votes);
    __syncthreads();
    int64_t own = column + __popc(votes & ((1u << lane) - 1));
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w < warp) own += of_warp[w];
      column += of_warp[w];
    }
    if (found) {
      int64_t rest = i;
      for (int axis = shape.rank - 1; axis >= 0; --axis) {
        y[axis * total + own] = rest % shape.length[axis];
        rest /= shape.length[axis];
      }
    }
    __syncthreads();  // all threads have read of_warp
  }
}

void RunCountNonZero(const CountNonZeroSpec& spec, const Execution& execution) {
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    Launch(CountNonZero<T>, static_cast<unsigned>(execution.outputs[0].size()), kThreads,
           StreamOf(execution.device), execution.in<T>(0), execution.inputs[0].size(),
           execution.out<int64_t>(0));
  });
}

void RunNonZero(const NonZeroSpec& spec, const Execution& execution) {
  const Shape& shape = execution.inputs[0].shape();
  Lengths lengths{shape.rank(), {}};
  std::copy(shape.begin(), shape.end(), lengths.length);
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    Launch(NonZero<T>, static_cast<unsigned>(execution.inputs[1].size()), kThreads,
           StreamOf(execution.device), execution.in<T>(0), execution.inputs[0].size(),
           execution.in<int64_t>(1), lengths, execution.outputs[0].shape()[1],
           execution.out<int64_t>(0));
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterImageKernels<ConcatSpec, RunConcat, ConcatLayouts>();
  RegisterImageKernels<SplitSpec, RunSplit, SplitLayouts>();
  RegisterKernels<SliceBackwardSpec, RunSliceBackward>();
  RegisterKernels<OneHotSpec, RunOneHot>();
  RegisterKernels<CountNonZeroSpec, RunCountNonZero>();
  RegisterKernels<NonZeroSpec, RunNonZero>();
}

}  // namespace singa::cuda
