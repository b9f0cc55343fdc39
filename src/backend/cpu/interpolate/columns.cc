#include "backend/cpu/interpolate/columns.h"

#include <algorithm>

#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

// ---- columns of one value

/// y[2i] and y[2i + 1] from x[a + i], x[b + i] and, with two taps, their right neighbours.
template <int kTaps, class T>
SINGA_MULTI_ISA void Twice(const float* x, const int32_t* at, const float* w, int64_t size,
                           int64_t n, T* y) {
  const float *a = x + at[0], *b = x + at[1];
  const float wa = w[0], wb = w[1];
  const float next_a = kTaps > 1 ? w[size] : 0, next_b = kTaps > 1 ? w[size + 1] : 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float left = wa * a[i], right = wb * b[i];
    if constexpr (kTaps > 1) {
      left += next_a * a[i + 1];
      right += next_b * b[i + 1];
    }
    y[2 * i] = Convert<T>(left);
    y[2 * i + 1] = Convert<T>(right);
  }
}

/// y[i] from kTaps neighbours, which begin at x[at + 2i].
template <int kTaps, class T>
SINGA_MULTI_ISA void Half(const float* x, const int32_t* at, const float* w, int64_t size,
                          int64_t n, T* y) {
  const float* from = x + at[0];
  float weights[kTaps];
  for (int k = 0; k < kTaps; ++k) weights[k] = w[k * size];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int k = 0; k < kTaps; ++k) sum += weights[k] * from[2 * i + k];
    y[i] = Convert<T>(sum);
  }
}

/// y[i] = Σ w[k · size + i] · x[at[k · size + i]]; kTaps 0: any number.
template <int kTaps, class T>
SINGA_MULTI_ISA void Any(const float* x, const int32_t* at, const float* w, int taps, int64_t size,
                         T* y) {
  const int count = kTaps > 0 ? kTaps : taps;
#pragma GCC ivdep
  for (int64_t i = 0; i < size; ++i) {
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += w[k * size + i] * x[at[k * size + i]];
    y[i] = Convert<T>(sum);
  }
}

// ---- columns of several values, such as a block of channels

/// kInner 0: any number of values. Adding 0 turns -0 into 0, since the padding of a block is zero
/// in all bits.
template <int kInner, class T>
SINGA_MULTI_ISA void Lanes(const float* x, const int32_t* at, const float* w, int taps,
                           int64_t size, int64_t given_inner, T* y) {
  const int64_t inner = kInner > 0 ? kInner : given_inner;
  for (int64_t i = 0; i < size; ++i) {
    T* to = y + i * inner;
    const float* a = x + at[i] * inner;
    const float wa = w[i];
    if (taps == 1) {
#pragma GCC ivdep
      for (int64_t j = 0; j < inner; ++j) to[j] = Convert<T>(0.0f + wa * a[j]);
      continue;
    }
    const float* b = x + at[size + i] * inner;
    const float wb = w[size + i];
    if (taps == 2) {
#pragma GCC ivdep
      for (int64_t j = 0; j < inner; ++j) to[j] = Convert<T>(0.0f + wa * a[j] + wb * b[j]);
      continue;
    }
    constexpr int64_t kChunk = 64;
    for (int64_t begin = 0; begin < inner; begin += kChunk) {
      const int64_t n = kInner > 0 ? kInner : std::min(kChunk, inner - begin);
      float sum[kChunk];
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) sum[j] = 0.0f + wa * a[begin + j] + wb * b[begin + j];
      for (int k = 2; k < taps; ++k) {
        const float* c = x + at[k * size + i] * inner + begin;
        const float wc = w[k * size + i];
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) sum[j] += wc * c[j];
      }
      for (int64_t j = 0; j < n; ++j) to[begin + j] = Convert<T>(sum[j]);
    }
  }
}

// ---- rows

/// Up to four rows, added to `out` or written to it.
template <bool kAdds, class T>
SINGA_MULTI_ISA void BlendFour(const T* const* rows, const float* w, size_t count, int64_t n,
                               float* out) {
  const auto blend = [=](auto sum) SINGA_INLINE_LAMBDA {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) out[j] = (kAdds ? out[j] : 0.0f) + sum(j);
  };
  const T *a = rows[0], *b = rows[count > 1 ? 1 : 0], *c = rows[count > 2 ? 2 : 0],
          *d = rows[count > 3 ? 3 : 0];
  const auto wide = [](T value) SINGA_INLINE_LAMBDA { return Convert<float>(value); };
  switch (count) {
    case 1:
      return blend([=](int64_t j) SINGA_INLINE_LAMBDA { return w[0] * wide(a[j]); });
    case 2:
      return blend([=](int64_t j)
                       SINGA_INLINE_LAMBDA { return w[0] * wide(a[j]) + w[1] * wide(b[j]); });
    case 3:
      return blend([=](int64_t j) SINGA_INLINE_LAMBDA {
        return w[0] * wide(a[j]) + w[1] * wide(b[j]) + w[2] * wide(c[j]);
      });
    default:
      return blend([=](int64_t j) SINGA_INLINE_LAMBDA {
        return w[0] * wide(a[j]) + w[1] * wide(b[j]) + (w[2] * wide(c[j]) + w[3] * wide(d[j]));
      });
  }
}

}  // namespace

Columns::Columns(const TapTable& taps, int64_t inner) : inner_(inner) {
  for (int64_t begin = 0; begin < taps.size();) {
    int64_t end = begin + 1;
    while (end < taps.size() && taps[end].size() == taps[begin].size()) ++end;
    Add(taps, begin, end);
    begin = end;
  }
}

void Columns::Add(const TapTable& table, int64_t begin, int64_t end) {
  Part part{Part::kAny, begin, end - begin, static_cast<int>(table[begin].size()), at_.size()};
  const size_t taps = table[begin].size();
  for (size_t k = 0; k < taps; ++k) {
    for (int64_t i = begin; i < end; ++i) {
      at_.push_back(static_cast<int32_t>(table[i][k].at));
      weight_.push_back(static_cast<float>(table[i][k].weight));
    }
  }
  if (inner_ == 1 && (taps == 1 || taps == 2) && Repeats(part, 2, 1)) part.kind = Part::kTwice;
  if (inner_ == 1 && (taps == 2 || taps == 4) && Repeats(part, 1, 2)) part.kind = Part::kHalf;
  parts_.push_back(part);
}

bool Columns::Repeats(const Part& part, int64_t period, int64_t step) const {
  if (part.size <= period) return false;
  for (int k = 0; k < part.taps; ++k) {
    const int32_t* at = at_.data() + part.first + static_cast<size_t>(k * part.size);
    const float* weight = weight_.data() + part.first + static_cast<size_t>(k * part.size);
    for (int64_t i = 0; i < part.size; ++i) {
      if (at[i] != at_[part.first + static_cast<size_t>(i)] + k) return false;
      if (i >= period && (at[i] != at[i - period] + step || weight[i] != weight[i - period]))
        return false;
    }
  }
  return true;
}

template <class T>
void Columns::Run(const float* row, T* out) const {
  for (const Part& part : parts_) {
    T* y = out + part.begin * inner_;
    const int32_t* at = at_.data() + part.first;
    const float* w = weight_.data() + part.first;
    const int64_t size = part.size;
    if (part.taps == 0) {
      std::fill_n(y, size * inner_, T(0));
    } else if (inner_ == 16) {
      Lanes<16>(row, at, w, part.taps, size, 16, y);
    } else if (inner_ == 8) {
      Lanes<8>(row, at, w, part.taps, size, 8, y);
    } else if (inner_ > 1) {
      Lanes<0>(row, at, w, part.taps, size, inner_, y);
    } else if (part.kind == Part::kTwice) {
      const int64_t pairs = size / 2;
      part.taps == 1 ? Twice<1>(row, at, w, size, pairs, y) : Twice<2>(row, at, w, size, pairs, y);
      for (int64_t i = 2 * pairs; i < size; ++i) {
        float sum = 0;
        for (int k = 0; k < part.taps; ++k) sum += w[k * size + i] * row[at[k * size + i]];
        y[i] = Convert<T>(sum);
      }
    } else if (part.kind == Part::kHalf) {
      part.taps == 2 ? Half<2>(row, at, w, size, size, y) : Half<4>(row, at, w, size, size, y);
    } else if (part.taps == 1) {
      Any<1>(row, at, w, 1, size, y);
    } else if (part.taps == 2) {
      Any<2>(row, at, w, 2, size, y);
    } else if (part.taps == 4) {
      Any<4>(row, at, w, 4, size, y);
    } else {
      Any<0>(row, at, w, part.taps, size, y);
    }
  }
}

template void Columns::Run(const float*, float*) const;
template void Columns::Run(const float*, BFloat16*) const;

template <class T>
void BlendRows(const T* const* rows, const float* weights, size_t count, int64_t n, float* out) {
  if (count == 0) return void(std::fill_n(out, n, 0.0f));
  BlendFour<false>(rows, weights, std::min<size_t>(count, 4), n, out);
  for (size_t r = 4; r < count; r += 4)
    BlendFour<true>(rows + r, weights + r, std::min<size_t>(count - r, 4), n, out);
}

template void BlendRows(const float* const*, const float*, size_t, int64_t, float*);
template void BlendRows(const BFloat16* const*, const float*, size_t, int64_t, float*);

}  // namespace singa::cpu
