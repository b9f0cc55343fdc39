#include "backend/cudnn/channels_last.h"

#include <cstring>

namespace singa::cudnn {
namespace {

/// Turns `count` matrices of elements of `size` bytes: to[i][c][r] = from[i][r][c].
void Transpose(const char* from, char* to, int64_t count, int64_t rows, int64_t cols, size_t size) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        std::memcpy(to + static_cast<size_t>((i * cols + c) * rows + r) * size,
                    from + static_cast<size_t>((i * rows + r) * cols + c) * size, size);
}

}  // namespace

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
  // What cuDNN does not convolve stays row-major.
  const bool convolved = dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16;
  return convolved ? ChannelsLastOf(shape(), dtype) : nullptr;
}

void ChannelsLast::Pack(const void* plain, void* opaque) const {
  const Shape& s = shape();
  Transpose(static_cast<const char*>(plain), static_cast<char*>(opaque), s[0], s[1], s[2] * s[3],
            SizeOf(dtype()));
}

void ChannelsLast::Unpack(const void* opaque, void* plain) const {
  const Shape& s = shape();
  Transpose(static_cast<const char*>(opaque), static_cast<char*>(plain), s[0], s[2] * s[3], s[1],
            SizeOf(dtype()));
}

LayoutPtr ChannelsLastOf(const Shape& shape, DType dtype) {
  if (shape.rank() != 4 || shape[1] == 1 || shape[2] * shape[3] == 1 || shape.Count() == 0)
    return nullptr;
  return std::make_shared<ChannelsLast>(shape, dtype);
}

std::array<int64_t, 4> ImageStrides(const Shape& shape, bool channels_last) {
  const int64_t c = shape[1], h = shape[2], w = shape[3];
  if (channels_last) return {c * h * w, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

}  // namespace singa::cudnn
