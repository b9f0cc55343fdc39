#include "backend/cuda/runtime/channels_last.h"

#include <cstring>

namespace singa::cudnn {
namespace {

/// Transposes `count` matrices of elements of `size` bytes: to[i][c][r] = from[i][r][c].
void Transpose(const char* from, char* to, int64_t count, int64_t rows, int64_t cols, size_t size) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        std::memcpy(to + static_cast<size_t>((i * cols + c) * rows + r) * size,
                    from + static_cast<size_t>((i * rows + r) * cols + c) * size, size);
}

}  // namespace

std::string ChannelsLast::ToString() const {
  constexpr const char* kNames[] = {"nwc", "nhwc", "ndhwc"};
  return kNames[shape().rank() - 3];
}

size_t ChannelsLast::bytes() const {
  return static_cast<size_t>(shape().Count()) * SizeOf(dtype());
}

size_t ChannelsLast::hash() const {
  uint64_t hash = 0x2545f4914f6cdd1du ^ static_cast<uint64_t>(dtype());
  for (const int64_t dim : shape())
    hash = (hash ^ static_cast<uint64_t>(dim)) * 0xff51afd7ed558ccdu, hash ^= hash >> 32;
  return hash;
}

bool ChannelsLast::Equals(const OpaqueLayout& other) const {
  return dynamic_cast<const ChannelsLast*>(&other) && shape() == other.shape() &&
         dtype() == other.dtype();
}

LayoutPtr ChannelsLast::WithType(DType dtype) const {
  // Types that cuDNN does not convolve stay row-major.
  const bool convolved = dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16;
  return convolved ? ChannelsLastOf(shape(), dtype) : nullptr;
}

std::optional<Strides> ChannelsLast::strides() const { return ImageStrides(shape(), true); }

void ChannelsLast::Pack(const void* plain, void* opaque) const {
  const Shape& s = shape();
  Transpose(static_cast<const char*>(plain), static_cast<char*>(opaque), s[0], s[1],
            s.Count(2, s.rank()), SizeOf(dtype()));
}

void ChannelsLast::Unpack(const void* opaque, void* plain) const {
  const Shape& s = shape();
  Transpose(static_cast<const char*>(opaque), static_cast<char*>(plain), s[0], s.Count(2, s.rank()),
            s[1], SizeOf(dtype()));
}

LayoutPtr ChannelsLastOf(const Shape& shape, DType dtype) {
  const int rank = shape.rank();
  if (rank < 3 || rank > 5 || shape[1] == 1 || shape.Count(2, rank) == 1 || shape.Count() == 0)
    return nullptr;
  return std::make_shared<ChannelsLast>(shape, dtype);
}

Strides ImageStrides(const Shape& shape, bool channels_last) {
  Strides strides = ContiguousStrides(shape);
  if (!channels_last) return strides;
  for (int axis = 2; axis < shape.rank(); ++axis) strides[axis] *= shape[1];
  strides[1] = 1;
  return strides;
}

}  // namespace singa::cudnn
