#include "core/tensor/copy.h"

#include <cstring>
#include <optional>
#include <vector>

#include "core/device/parallel.h"
#include "core/tensor/convert_chunk.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/strided.h"
#include "core/tensor/turn.h"
#include "singa/core/error.h"

namespace singa {

namespace {

// Array 0 is the destination, array 1 the source.
using CopySpace = StridedSpace<2>;

constexpr int64_t kStrip = 32;  // elements that a transposition reads side by side

// Transposes: the destination is dense along its innermost axis and the source along `axis`. By
// rows, each read would touch another cache line; by strips, all elements of a line are used.
template <class T>
void CopyTransposed(const CopySpace& space, int axis, const T* src, T* dst) {
  const int inner = space.rank() - 1;
  const int64_t columns = space.inner_length();
  const int64_t rows = space.length(axis);
  const int64_t src_step = space.inner_stride(1);
  const int64_t dst_step = space.stride(0, axis);
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  const int64_t outer = space.size() / (rows * columns);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const T* s = src;
      T* d = dst;
      int64_t rest = unit / strips;
      for (int a = inner - 1; a >= 0; --a) {
        if (a == axis) continue;
        const int64_t i = rest % space.length(a);
        rest /= space.length(a);
        s += i * space.stride(1, a);
        d += i * space.stride(0, a);
      }
      const int64_t row = unit % strips * kStrip;
      Turn(s + row, src_step, columns, std::min(kStrip, rows - row), d + row * dst_step, dst_step);
    }
  };
  ParallelFor(outer * strips, std::max<int64_t>(1, kParallelGrain / (kStrip * columns)), body);
}

// The axis along which the source is dense, if a tiled transposition pays off; else -1.
int TransposedAxis(const CopySpace& space) {
  const int inner = space.rank() - 1;
  if (space.inner_stride(0) != 1 || space.inner_length() < 8) return -1;
  if (std::abs(space.inner_stride(1)) < 8) return -1;
  for (int axis = 0; axis < inner; ++axis)
    if (space.stride(1, axis) == 1 && space.length(axis) >= 8) return axis;
  return -1;
}

// Copies elements of one type as unsigned integers of the same size.
template <class T>
void CopySame(const CopySpace& space, const T* src, T* dst) {
  if (const int axis = TransposedAxis(space); axis >= 0) {
    CopyTransposed(space, axis, src, dst);
    return;
  }
  const int64_t dst_stride = space.inner_stride(0);
  const int64_t src_stride = space.inner_stride(1);
  ParallelFor(space.size(), kParallelGrain, [&](int64_t begin, int64_t end) {
    space.Walk(begin, end, [&](const CopySpace::Offsets& offset, int64_t n) {
      T* d = dst + offset[0];
      const T* s = src + offset[1];
      if (dst_stride == 1 && src_stride == 1) {
        std::memcpy(d, s, static_cast<size_t>(n) * sizeof(T));
      } else if (dst_stride == 1 && src_stride == 0) {
        std::fill_n(d, n, *s);
      } else {
        for (int64_t i = 0; i < n; ++i) d[i * dst_stride] = s[i * src_stride];
      }
    });
  });
}

// Converts in two steps through the source's compute type C, which represents all values of the
// source.
template <class C>
void CopyThrough(const CopySpace& space, const void* src, DType from, void* dst, DType to) {
  const LoadChunkFn<C> load = FindLoad<C>(from);
  const StoreChunkFn<C> store = FindStore<C>(to);
  const int64_t dst_stride = space.inner_stride(0);
  const int64_t src_stride = space.inner_stride(1);
  const bool direct = from == kDTypeOf<C> && src_stride == 1;
  ParallelFor(space.size(), kParallelGrain / 2, [&](int64_t begin, int64_t end) {
    C buffer[kChunk];
    space.Walk(begin, end, [&](const CopySpace::Offsets& offset, int64_t n) {
      if (direct) {
        store(static_cast<const C*>(src) + offset[1], n, dst, offset[0], dst_stride);
        return;
      }
      for (int64_t at = 0; at < n; at += kChunk) {
        const int64_t count = std::min(kChunk, n - at);
        load(src, offset[1] + at * src_stride, src_stride, count, buffer);
        store(buffer, count, dst, offset[0] + at * dst_stride, dst_stride);
      }
    });
  });
}

void CopyElements(const CopySpace& space, const void* src, DType from, void* dst, DType to) {
  if (from == to) {
    const auto run = [&]<class T>(T*) {
      CopySame(space, static_cast<const T*>(src), static_cast<T*>(dst));
    };
    switch (SizeOf(from)) {
      case 1:
        return run(static_cast<uint8_t*>(nullptr));
      case 2:
        return run(static_cast<uint16_t*>(nullptr));
      case 4:
        return run(static_cast<uint32_t*>(nullptr));
      default:
        return run(static_cast<uint64_t*>(nullptr));
    }
  }
  SwitchCompute(from, [&]<class C>() { CopyThrough<C>(space, src, from, dst, to); });
}

// The range of addresses [first, last) that the elements of a tensor occupy.
struct Reach {
  const char* first;
  const char* last;
};
Reach ReachOf(const Tensor& t) {
  const auto span = ElementSpan(t.shape(), t.strides());
  const auto size = static_cast<int64_t>(SizeOf(t.data_type()));
  const char* base = static_cast<const char*>(t.raw_data());
  return {base + span[0] * size, base + (span[1] + 1) * size};
}

// True if the two tensors are the same elements in the same order.
bool SameElements(const Tensor& a, const Tensor& b) {
  return a.block() == b.block() && a.offset() == b.offset() && a.data_type() == b.data_type() &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

template <class T>
void FillWith(const Tensor& dst, T value) {
  const StridedSpace<1> space(dst.shape(), {dst.strides()});
  T* data = static_cast<T*>(dst.raw_data());
  const int64_t stride = space.inner_stride(0);
  ParallelFor(space.size(), kParallelGrain, [&](int64_t begin, int64_t end) {
    space.Walk(begin, end, [&](const StridedSpace<1>::Offsets& offset, int64_t n) {
      T* d = data + offset[0];
      if (stride == 1) {
        std::fill_n(d, n, value);
      } else {
        for (int64_t i = 0; i < n; ++i) d[i * stride] = value;
      }
    });
  });
}

}  // namespace

bool OverlapsPartly(const Tensor& src, const Tensor& dst) {
  if (src.block() != dst.block() || src.size() == 0 || dst.size() == 0) return false;
  if (SameElements(src, dst)) return false;
  const Reach a = ReachOf(src);
  const Reach b = ReachOf(dst);
  return a.first < b.last && b.first < a.last;
}

void StridedCopy(const Tensor& src, const Tensor& dst) {
  Check(src.shape() == dst.shape(), "Copy", "shapes differ: from ", src.shape(), " to ",
        dst.shape());
  if (dst.size() == 0) return;
  if (SameElements(src, dst)) return;
  if (OverlapsPartly(src, dst)) {
    const Strides dense = ContiguousStrides(src.shape());
    std::vector<char> copy(static_cast<size_t>(src.size()) * SizeOf(src.data_type()));
    CopyElements(CopySpace(src.shape(), {dense, src.strides()}), src.raw_data(), src.data_type(),
                 copy.data(), src.data_type());
    CopyElements(CopySpace(src.shape(), {dst.strides(), dense}), copy.data(), src.data_type(),
                 dst.raw_data(), dst.data_type());
    return;
  }
  CopyElements(CopySpace(src.shape(), {dst.strides(), src.strides()}), src.raw_data(),
               src.data_type(), dst.raw_data(), dst.data_type());
}

bool LiesAs(const Tensor& t, const LayoutPtr& layout) {
  const std::optional<Strides> wanted = layout ? layout->strides() : std::nullopt;
  if (!wanted || t.layout()) return false;
  for (int axis = 0; axis < t.rank(); ++axis)
    if (t.shape()[axis] > 1 && t.strides()[axis] != (*wanted)[axis]) return false;
  return true;
}

void StridedFill(const Tensor& dst, double value) {
  if (dst.size() == 0) return;
  SwitchAll(dst.data_type(), "Fill", [&]<class T>() { FillWith<T>(dst, Convert<T>(value)); });
}

}  // namespace singa
