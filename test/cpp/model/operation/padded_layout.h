#pragma once

// An opaque layout that no backend knows: elements in reverse order, with zeros on both sides. An
// operation either works in this layout and keeps the zeros, or converts the tensor to plain.

#include <cstring>

#include "singa/core/layout.h"
#include "singa/core/tensor.h"

namespace singa::test {

class PaddedLayout final : public OpaqueLayout {
 public:
  static constexpr int64_t kPadding = 7;  // on each side

  PaddedLayout(const Shape& shape, DType dtype) : OpaqueLayout(shape, dtype) {}
  const char* backend() const override { return "test"; }
  size_t bytes() const override {
    return static_cast<size_t>(shape().Count() + 2 * kPadding) * SizeOf(dtype());
  }
  size_t hash() const override { return bytes(); }
  bool Equals(const OpaqueLayout& other) const override {
    return dynamic_cast<const PaddedLayout*>(&other) && other.shape() == shape() &&
           other.dtype() == dtype();
  }
  std::string ToString() const override { return "padded"; }
  void Pack(const void* plain, void* opaque) const override {
    std::memset(opaque, 0, bytes());
    Reverse(static_cast<const char*>(plain), static_cast<char*>(opaque) + Skipped());
  }
  void Unpack(const void* opaque, void* plain) const override {
    Reverse(static_cast<const char*>(opaque) + Skipped(), static_cast<char*>(plain));
  }

  static Tensor Of(const Tensor& t) {
    return t.ToLayout(std::make_shared<PaddedLayout>(t.shape(), t.data_type()));
  }

 private:
  size_t Skipped() const { return kPadding * SizeOf(dtype()); }
  void Reverse(const char* from, char* to) const {
    const size_t size = SizeOf(dtype());
    const auto n = static_cast<size_t>(shape().Count());
    for (size_t i = 0; i < n; ++i) std::memcpy(to + i * size, from + (n - 1 - i) * size, size);
  }
};

/// True if `t` is float32 in this layout and its padding is zero (of either sign).
inline bool IsPaddedWithZeros(const Tensor& t) {
  if (!t.layout() || t.layout()->ToString() != "padded" || t.data_type() != kFloat32) return false;
  const float* data = static_cast<const float*>(t.raw_data());
  const int64_t end = t.size() + 2 * PaddedLayout::kPadding;
  for (int64_t i = 0; i < PaddedLayout::kPadding; ++i)
    if (data[i] != 0 || data[end - 1 - i] != 0) return false;
  return true;
}

}  // namespace singa::test
