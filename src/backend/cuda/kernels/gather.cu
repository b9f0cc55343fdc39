// Gather and Embedding: select rows by index, and in backward add up rows by index.
//
// Backward sorts the picks by row, stably, and assigns each element of dx to a thread. So the order
// of sums is fixed, unlike with atomic additions.

#include <array>

#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/positions.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/radix_sort.h"
#include "model/operation/indexing/gather_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

template <class Spec>
Indices IndicesOf(const Spec& spec, const Tensor& indices) {
  return {indices.raw_data(),
          indices.data_type(),
          spec.count,
          spec.x_shape[spec.axis],
          spec.kind == GatherKind::kGather,
          FaultOf(spec.op())};
}

/// y (outer, count, width). U is an integer of the element's size, or a word of several elements.
template <class U, class Index>
__global__ void __launch_bounds__(kThreads)
    Gather(const U* x, Indices indices, Strided<2, Index> outer, Strided<2, Index> inner,
           DivisorOf<Index> width, DivisorOf<Index> count, int64_t step, U* y, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const Index row = width.Divide(static_cast<Index>(i)), line = count.Divide(row);
    y[i] = x[outer.Locate(line).at[1] + indices.At(row - line * count.value()) * step +
             inner.Locate(static_cast<Index>(i) - row * width.value()).at[1]];
  }
}

/// The same positions in x, in words of `ratio` elements.
StridedSpace<2> InWords(const StridedSpace<2>& space, int64_t ratio) {
  Shape shape;
  std::array<Strides, 2> strides;
  for (int axis = 0; axis < space.rank(); ++axis) {
    shape.push_back(space.length(axis));
    strides[0].push_back(space.stride(0, axis));
    strides[1].push_back(space.stride(1, axis) / ratio);
  }
  return {shape, strides};
}

void RunGather(const GatherSpec& spec, const Execution& execution) {
  const Tensor& x = execution.inputs[0];
  const Tensor& y = execution.outputs[0];
  const Stream stream = StreamOf(execution.device);
  const Indices indices = IndicesOf(spec, execution.inputs[1]);
  if (y.size() == 0 || x.size() == 0) return CheckIndices(indices, stream);
  const StridedSpace<2> outer = AxesBetween(spec.x_shape, x.strides(), 0, spec.axis);
  const StridedSpace<2> inner =
      AxesBetween(spec.x_shape, x.strides(), spec.axis + 1, spec.x_shape.rank());
  const int64_t step = x.strides()[spec.axis];
  // Contiguous rows are copied in aligned words of 16 bytes.
  const auto ratio = static_cast<int64_t>(sizeof(uint4) / SizeOf(spec.dtype));
  bool wide = inner.dense(1) && inner.size() % ratio == 0 && step % ratio == 0 &&
              IsAligned(x.raw_data()) && IsAligned(y.raw_data());
  for (int axis = 0; axis < outer.rank(); ++axis) wide = wide && outer.stride(1, axis) % ratio == 0;
  const auto launch = [&]<class U>(const StridedSpace<2>& lines, const StridedSpace<2>& row,
                                   int64_t row_step) {
    const int64_t size = row.size() * spec.count * lines.size();
    const auto queue = [&]<class Index>(Index) {
      LaunchIndependent(Gather<U, Index>, GridFor(size, kThreads), kThreads, stream,
                        static_cast<const U*>(x.raw_data()), indices, Strided<2, Index>(lines),
                        Strided<2, Index>(row), DivisorOf<Index>(row.size()),
                        DivisorOf<Index>(spec.count), row_step, static_cast<U*>(y.raw_data()),
                        size);
    };
    FitsIndex32(size) ? queue(uint32_t{}) : queue(int64_t{});
  };
  if (wide) {
    const StridedSpace<2> row({inner.size() / ratio}, {Strides{1}, Strides{1}});
    return launch.template operator()<uint4>(InWords(outer, ratio), row, step / ratio);
  }
  SwitchSize(SizeOf(spec.dtype),
             [&]<class U>() { launch.template operator()<U>(outer, inner, step); });
}

// ---- backward

/// dx (outer, length, width) from dy (outer, count, width). A thread has kLength neighbours;
/// `width` and `size` count these.
template <class T, int kLength, class Index>
__global__ void __launch_bounds__(kThreads)
    SumPicks(const T* dy, const int64_t* picks, const int64_t* begins, int64_t count,
             DivisorOf<Index> length, DivisorOf<Index> width, T* dx, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const Index line = width.Divide(static_cast<Index>(i)), outer = length.Divide(line);
    const Index row = line - outer * length.value();
    const int64_t pitch = int64_t{width.value()} * kLength;
    const T* source =
        dy + int64_t{outer} * count * pitch + (i - int64_t{line} * width.value()) * kLength;
    const int64_t end = begins[row + 1];
    double sum[kLength] = {};
#pragma unroll 4
    for (int64_t p = begins[row]; p < end; ++p) {
      const auto values = LoadVector<T, kLength>(source + picks[p] * pitch);
#pragma unroll
      for (int j = 0; j < kLength; ++j)
        sum[j] += static_cast<double>(Cast<ComputeType<T>>(values.v[j]));
    }
    Vector<T, kLength> out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) out.v[j] = Cast<T>(sum[j]);
    StoreVector(dx + i * kLength, out);
  }
}

void RunGatherBackward(const GatherBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t length = spec.x_shape[spec.axis];
  const int64_t width = spec.x_shape.Count(spec.axis + 1, spec.x_shape.rank());
  const int64_t size = execution.outputs[0].size();
  const Indices indices = IndicesOf(spec, execution.inputs[1]);
  if (size == 0) return CheckIndices(indices, stream);
  const PickGroups groups = QueueGroups(indices, length, execution.workspace, stream);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* dy = execution.in<T>(0);
    T* dx = execution.out<T>(0);
    const auto launch = [&]<int kLength, class Index>(Index) {
      LaunchIndependent(SumPicks<T, kLength, Index>, GridFor(size / kLength, kThreads), kThreads,
                        stream, dy, groups.picks, groups.begins, spec.count,
                        DivisorOf<Index>(length), DivisorOf<Index>(width / kLength), dx,
                        size / kLength);
    };
    constexpr int kLength = kVectorLength<T>;
    if (!FitsIndex32(size)) {
      launch.template operator()<1>(int64_t{});
    } else if (width % kLength == 0 && IsAligned(dy) && IsAligned(dx)) {
      launch.template operator()<kLength>(uint32_t{});
    } else {
      launch.template operator()<1>(uint32_t{});
    }
  });
}

size_t BackwardWorkspace(const GatherBackwardSpec& spec) {
  return GroupsWorkspace(spec.count, spec.x_shape[spec.axis]);
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<GatherSpec, RunGather>();
  RegisterKernels<GatherBackwardSpec, RunGatherBackward, BackwardWorkspace>();
}

}  // namespace singa::cuda
