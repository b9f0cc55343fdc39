// Concatenation and its reverse, gradients of slices, scatter, one-hot vectors, positions of what
// is not zero.

#include <algorithm>

#include "backend/cudnn/kernels/copy.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/image_plan.h"
#include "backend/cudnn/kernels/join.h"
#include "backend/cudnn/kernels/positions.h"
#include "backend/cudnn/kernels/register.h"
#include "model/operation/indexing_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// A tensor seen by strides, however it lies, from some place of an axis on.
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

// ---- ScatterElements. Where several updates go to one element, the one that is last along the
// axis wins; which one that is, is settled first: `last` of each place in x.

struct Scatter {
  Indices indices;
  int64_t index_length, index_step, x_step;
  Strided<2, int64_t> space;  ///< array 0: places among the indices; 1: in x, without the axis

  __device__ int64_t Place(int64_t i) const {
    return space.Locate(i).at[1] + indices.At(i) * x_step;
  }
  __device__ int64_t AlongAxis(int64_t i) const { return i / index_step % index_length; }
};

template <class Spec>
Indices IndicesOf(const Spec& spec, const Tensor& indices) {
  return {indices.raw_data(),
          indices.data_type(),
          spec.index_shape.Count(),
          spec.x_shape[spec.axis],
          true,
          FaultOf(spec.op())};
}

template <class Spec>
Scatter ScatterOf(const Spec& spec, const Tensor& indices) {
  const Strides index_strides = ContiguousStrides(spec.index_shape);
  Strides x_strides = ContiguousStrides(spec.x_shape);
  const int64_t x_step = x_strides[spec.axis];
  x_strides[spec.axis] = 0;
  return {IndicesOf(spec, indices), std::max<int64_t>(spec.index_shape[spec.axis], 1),
          std::max<int64_t>(index_strides[spec.axis], 1), x_step,
          Strided<2, int64_t>(StridedSpace<2>(spec.index_shape, {index_strides, x_strides}))};
}

__global__ void __launch_bounds__(kThreads) ForgetLast(Scatter scatter, int64_t* last) {
  for (int64_t i = FirstElement(); i < scatter.indices.count; i += ElementStep())
    StoreSame(last + scatter.Place(i), int64_t{-1});
}

__global__ void __launch_bounds__(kThreads) FindLast(Scatter scatter, int64_t* last) {
  for (int64_t i = FirstElement(); i < scatter.indices.count; i += ElementStep())
    atomicMax(reinterpret_cast<long long*>(last + scatter.Place(i)),
              static_cast<long long>(scatter.AlongAxis(i)));
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    WriteLast(Scatter scatter, const int64_t* last, const U* updates, U* y) {
  for (int64_t i = FirstElement(); i < scatter.indices.count; i += ElementStep()) {
    const int64_t place = scatter.Place(i);
    if (last[place] == scatter.AlongAxis(i)) y[place] = updates[i];
  }
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    ReadLast(Scatter scatter, const int64_t* last, const U* dy, U* dx, U* dupdates) {
  for (int64_t i = FirstElement(); i < scatter.indices.count; i += ElementStep()) {
    const int64_t place = scatter.Place(i);
    // All float types have zero as zero bits.
    dupdates[i] = last[place] == scatter.AlongAxis(i) ? dy[place] : U(0);
    StoreSame(dx + place, U(0));
  }
}

void QueueLast(const Scatter& scatter, int64_t* last, Stream stream) {
  const dim3 grid = GridFor(scatter.indices.count, kThreads);
  LaunchIndependent(ForgetLast, grid, kThreads, stream, scatter, last);
  LaunchIndependent(FindLast, grid, kThreads, stream, scatter, last);
}

void RunScatterElements(const ScatterElementsSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  QueueCopy(execution.inputs[0], execution.outputs[0], stream);
  if (spec.x_shape.Count() == 0) return CheckIndices(IndicesOf(spec, execution.inputs[1]), stream);
  const Scatter scatter = ScatterOf(spec, execution.inputs[1]);
  auto* last = static_cast<int64_t*>(execution.workspace);
  QueueLast(scatter, last, stream);
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
    LaunchIndependent(WriteLast<U>, GridFor(scatter.indices.count, kThreads), kThreads, stream,
                      scatter, last, execution.in<U>(2), execution.out<U>(0));
  });
}

void RunScatterElementsBackward(const ScatterElementsBackwardSpec& spec,
                                const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  QueueCopy(execution.inputs[0], execution.outputs[0], stream);
  if (spec.x_shape.Count() == 0) return CheckIndices(IndicesOf(spec, execution.inputs[1]), stream);
  const Scatter scatter = ScatterOf(spec, execution.inputs[1]);
  auto* last = static_cast<int64_t*>(execution.workspace);
  QueueLast(scatter, last, stream);
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
    LaunchIndependent(ReadLast<U>, GridFor(scatter.indices.count, kThreads), kThreads, stream,
                      scatter, last, execution.in<U>(0), execution.out<U>(0), execution.out<U>(1));
  });
}

template <class Spec>
size_t LastWorkspace(const Spec& spec) {
  return static_cast<size_t>(spec.x_shape.Count()) * sizeof(int64_t);
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

// ---- NonZero, a block for each piece

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
    __syncthreads();  // of_warp has been read
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

void RegisterIndexing() {
  RegisterImageKernels<ConcatSpec, RunConcat, ConcatLayouts>();
  RegisterImageKernels<SplitSpec, RunSplit, SplitLayouts>();
  RegisterKernels<SliceBackwardSpec, RunSliceBackward>();
  RegisterKernels<ScatterElementsSpec, RunScatterElements, LastWorkspace<ScatterElementsSpec>>();
  RegisterKernels<ScatterElementsBackwardSpec, RunScatterElementsBackward,
                  LastWorkspace<ScatterElementsBackwardSpec>>();
  RegisterKernels<OneHotSpec, RunOneHot>();
  RegisterKernels<CountNonZeroSpec, RunCountNonZero>();
  RegisterKernels<NonZeroSpec, RunNonZero>();
}

}  // namespace singa::cuda
