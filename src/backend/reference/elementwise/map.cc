#include "backend/reference/elementwise/map.h"

#include "core/tensor/dtype_switch.h"
#include "core/tensor/strided.h"

namespace singa::reference {

namespace {

template <class C, int N>
void MapInputs(std::span<const Tensor> in, const Tensor& out, int64_t grain, bool condition,
               RunFunction<C> run) {
  // Array 0 is the result, 1 ... N the inputs.
  const StridedSpace<N + 1> space = SpaceOf<N + 1>(in, out);
  if (space.size() == 0) return;

  // Operands of type C that are contiguous along the innermost axis are read in place.
  std::array<const void*, N> source;
  std::array<LoadChunkFn<C>, N> load;
  std::array<int64_t, N> stride;
  for (int k = 0; k < N; ++k) {
    source[k] = in[k].raw_data();
    stride[k] = space.inner_stride(k + 1);
    const DType dtype = in[k].data_type();
    const bool direct = dtype == kDTypeOf<C> && stride[k] == 1;
    load[k] = direct ? nullptr : condition && k == 0 ? FindTruthLoad<C>(dtype) : FindLoad<C>(dtype);
  }
  void* result = out.raw_data();
  const int64_t out_stride = space.inner_stride(0);
  const bool direct = out.data_type() == kDTypeOf<C> && (out_stride == 1 || space.size() == 1);
  const StoreChunkFn<C> store = direct ? nullptr : FindStore<C>(out.data_type());
  bool all_direct = direct;
  for (int k = 0; k < N; ++k) all_direct &= load[k] == nullptr;

  ParallelFor(space.size(), grain, [&](int64_t begin, int64_t end) {
    C buffer[N + 1][kChunk];
    space.Walk(begin, end, [&](const typename StridedSpace<N + 1>::Offsets& offset, int64_t n) {
      std::array<const C*, N> x;
      const int64_t step = all_direct ? n : kChunk;
      for (int64_t at = 0; at < n; at += step) {
        const int64_t count = std::min(step, n - at);
        for (int k = 0; k < N; ++k) {
          const int64_t from = offset[k + 1] + at * stride[k];
          if (!load[k]) {
            x[k] = static_cast<const C*>(source[k]) + from;
            continue;
          }
          x[k] = buffer[k];
          // A value that repeats along the run is still in the buffer.
          if (stride[k] != 0 || at == 0) load[k](source[k], from, stride[k], count, buffer[k]);
        }
        if (direct) {
          run(x.data(), static_cast<C*>(result) + offset[0] + at, count);
        } else {
          run(x.data(), buffer[N], count);
          store(buffer[N], count, result, offset[0] + at * out_stride, out_stride);
        }
      }
    });
  });
}

template <class C>
void MapAny(std::span<const Tensor> in, const Tensor& out, int64_t grain, bool condition,
            RunFunction<C> run) {
  switch (in.size()) {
    case 1:
      return MapInputs<C, 1>(in, out, grain, condition, run);
    case 2:
      return MapInputs<C, 2>(in, out, grain, condition, run);
    case 3:
      return MapInputs<C, 3>(in, out, grain, condition, run);
    case 4:
      return MapInputs<C, 4>(in, out, grain, condition, run);
    default:
      throw std::logic_error("Map takes 1 to 4 inputs");
  }
}

}  // namespace

template <class C>
void Map(std::span<const Tensor> in, const Tensor& out, int64_t grain, RunFunction<C> run) {
  MapAny<C>(in, out, grain, false, run);
}
template <class C>
void MapWithCondition(std::span<const Tensor> in, const Tensor& out, int64_t grain,
                      RunFunction<C> run) {
  MapAny<C>(in, out, grain, true, run);
}

SINGA_MULTI_ISA bool HasBeyond(const float* x, int64_t n, float limit) {
  int beyond = 0;
  for (int64_t i = 0; i < n; ++i) beyond |= static_cast<int>(std::fabs(x[i]) > limit);
  return beyond != 0;
}

#define SINGA_INSTANTIATE(C)                                                             \
  template void Map<C>(std::span<const Tensor>, const Tensor&, int64_t, RunFunction<C>); \
  template void MapWithCondition<C>(std::span<const Tensor>, const Tensor&, int64_t, RunFunction<C>)
SINGA_INSTANTIATE(float);
SINGA_INSTANTIATE(double);
SINGA_INSTANTIATE(int32_t);
SINGA_INSTANTIATE(int64_t);
#undef SINGA_INSTANTIATE

}  // namespace singa::reference
