#pragma once

// The arguments of attention as kernels read them: by strides.

#include <cstdint>
#include <limits>

#include "core/tensor/convert_chunk.h"
#include "model/operation/attention/spec.h"
#include "singa/core/tensor.h"

namespace singa {

/// The rows of a tensor (B, H, N, D), each with D elements side by side.
template <class T>
struct AttentionRows {
  T* data;
  int64_t batch, head, row;  ///< strides

  explicit AttentionRows(const Tensor& t)
      : data(static_cast<T*>(t.raw_data())),
        batch(t.strides()[0]),
        head(t.strides()[1]),
        row(t.strides()[2]) {}
  constexpr T* At(int64_t b, int64_t h, int64_t i) const {
    return data + b * batch + h * head + i * row;
  }
};

/// The element of dmask that the score of key j of a row adds to; rows are counted over batch,
/// heads and queries.
inline int64_t AttentionMaskElement(const AttentionBackwardSpec& spec, int64_t row, int64_t j) {
  const Shape& s = spec.dmask;
  const auto at = [](int64_t index, int64_t extent) { return extent == 1 ? 0 : index; };
  const int64_t b = row / spec.queries / spec.heads % s[0];
  const int64_t h = at(row / spec.queries % spec.heads, s[1]);
  return ((b * s[1] + h) * s[2] + at(row % spec.queries, s[2])) * s[3] + at(j, s[3]);
}

/// What the mask adds to scores. A key that a bool mask excludes gets -inf.
template <class C>
class AttentionMask {
 public:
  /// Empty: no mask. Its first axis repeats along the batch.
  explicit AttentionMask(const Tensor& mask) : there_(!mask.empty()) {
    if (!there_) return;
    batch_ = mask.shape(0);
    data_ = mask.raw_data();
    strides_ = mask.strides();
    is_bool_ = mask.data_type() == kBool;
    direct_ = mask.data_type() == (sizeof(C) == 4 ? kFloat32 : kFloat64) && strides_[3] == 1;
    load_ = FindLoad<C>(mask.data_type());
  }
  explicit operator bool() const { return there_; }
  /// Where the row of a query begins. Queries with the same number have the same mask.
  int64_t RowOffset(int64_t b, int64_t h, int64_t i) const {
    return there_ ? b % batch_ * strides_[0] + h * strides_[1] + i * strides_[2] : 0;
  }
  /// The row, where it is stored as it is added; else null.
  const C* Floats(int64_t row_offset) const {
    return direct_ ? static_cast<const C*>(data_) + row_offset : nullptr;
  }
  /// out[j] is for key first + j of this row.
  void Load(int64_t row_offset, int64_t first, int64_t n, C* out) const {
    load_(data_, row_offset + first * strides_[3], strides_[3], n, out);
    if (!is_bool_) return;
    for (int64_t j = 0; j < n; ++j)
      out[j] = out[j] != C(0) ? C(0) : -std::numeric_limits<C>::infinity();
  }

 private:
  bool there_;
  bool is_bool_ = false, direct_ = false;
  int64_t batch_ = 1;
  const void* data_ = nullptr;
  Strides strides_;
  LoadChunkFn<C> load_ = nullptr;
};

}  // namespace singa
