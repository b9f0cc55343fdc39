#include "core/tensor/convert_chunk.h"

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"

namespace singa {

namespace {

template <class C, class T>
SINGA_MULTI_ISA void Load(const void* source, int64_t offset, int64_t stride, int64_t n, C* out) {
  const T* from = static_cast<const T*>(source) + offset;
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<C>(from[i]);
  } else if (stride == 0) {
    const C value = Convert<C>(*from);
    for (int64_t i = 0; i < n; ++i) out[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<C>(from[i * stride]);
  }
}

template <class C, class T>
void LoadTruth(const void* source, int64_t offset, int64_t stride, int64_t n, C* out) {
  const T* from = static_cast<const T*>(source) + offset;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(Convert<bool>(from[i * stride]));
}

template <class C, class T>
SINGA_MULTI_ISA void Store(const C* values, int64_t n, void* out, int64_t offset, int64_t stride) {
  T* to = static_cast<T*>(out) + offset;
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = Convert<T>(values[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = Convert<T>(values[i]);
  }
}

}  // namespace

template <class C>
LoadChunkFn<C> FindLoad(DType dtype) {
  return SwitchAll(dtype, "Convert", []<class T>() -> LoadChunkFn<C> { return Load<C, T>; });
}
template <class C>
StoreChunkFn<C> FindStore(DType dtype) {
  return SwitchAll(dtype, "Convert", []<class T>() -> StoreChunkFn<C> { return Store<C, T>; });
}
template <class C>
LoadChunkFn<C> FindTruthLoad(DType dtype) {
  return SwitchAll(dtype, "Convert", []<class T>() -> LoadChunkFn<C> { return LoadTruth<C, T>; });
}

template LoadChunkFn<float> FindLoad<float>(DType);
template LoadChunkFn<double> FindLoad<double>(DType);
template LoadChunkFn<int32_t> FindLoad<int32_t>(DType);
template LoadChunkFn<int64_t> FindLoad<int64_t>(DType);
template StoreChunkFn<float> FindStore<float>(DType);
template StoreChunkFn<double> FindStore<double>(DType);
template StoreChunkFn<int32_t> FindStore<int32_t>(DType);
template StoreChunkFn<int64_t> FindStore<int64_t>(DType);
template LoadChunkFn<float> FindTruthLoad<float>(DType);
template LoadChunkFn<double> FindTruthLoad<double>(DType);
template LoadChunkFn<int32_t> FindTruthLoad<int32_t>(DType);
template LoadChunkFn<int64_t> FindTruthLoad<int64_t>(DType);

}  // namespace singa
