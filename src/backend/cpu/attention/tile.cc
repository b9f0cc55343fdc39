#include "backend/cpu/attention/tile.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/tensor/dtype_switch.h"
#include "core/tensor/turn.h"
#include "model/formula/philox_fill.h"
#include "model/formula/vector_math.h"

namespace singa::cpu::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// exp(x) for x <= 0, up to rounding. Results that would be subnormal are zero, because some
/// processors multiply subnormal numbers a hundred times slower.
SINGA_INLINE float Weight(float x) {
  const auto [power, tail] = formula::detail::Split(x > 88.0f ? 88.0f : x);
  return x < -87.0f ? 0.0f : (1 + tail) * formula::detail::PowerOfTwo(power);
}

SINGA_MULTI_ISA void AddToRows(const float* added, int64_t rows, int64_t columns, float* x) {
  for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) x[r * columns + c] += added[r];
}

/// Row r of column c becomes -inf unless r < ends[c].
SINGA_MULTI_ISA void CutColumns(const int32_t* ends, int64_t first, int64_t rows, int64_t columns,
                                float* x) {
  for (int64_t r = first; r < rows; ++r) {
    const auto row = static_cast<int32_t>(r);
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c)
      x[r * columns + c] = row < ends[c] ? x[r * columns + c] : -kInf;
  }
}

/// to[r][i] = factor · from[r][i], and zeros up to the step.
template <class T>
SINGA_MULTI_ISA void Widen(const T* from, int64_t row_step, int64_t rows, int64_t length,
                           float factor, float* to, int64_t to_step) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = from + r * row_step;
    float* y = to + r * to_step;
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) y[i] = Convert<float>(x[i]) * factor;
    for (int64_t i = length; i < to_step; ++i) y[i] = 0;
  }
}

}  // namespace

void Problem::Locate(int64_t kv_head, int64_t index, Tile* tile) const {
  const AttentionGeometry& g = geometry_;
  tile->batch = kv_head / g.kv_heads;
  tile->kv_head = kv_head % g.kv_heads;
  const int64_t first = index * kTileQueries;
  tile->count = std::min(kTileQueries, g.queries * g.group() - first);
  tile->columns = RoundUp(tile->count, lanes_);
  tile->any_keys = 0;
  tile->all_keys = g.keys;
  tile->same_mask = true;
  for (int64_t c = 0; c < tile->count; ++c) {
    tile->head[c] = tile->kv_head * g.group() + (first + c) / g.queries;
    const int64_t i = tile->query[c] = (first + c) % g.queries;
    tile->keys[c] = KeysOf(i);
    tile->any_keys = std::max(tile->any_keys, tile->keys[c]);
    tile->all_keys = std::min(tile->all_keys, tile->keys[c]);
    tile->mask[c] = mask_.RowOffset(tile->batch, tile->head[c], i);
    tile->same_mask &= tile->mask[c] == tile->mask[0];
  }
}

void Problem::AddMask(int64_t b, int64_t h, int64_t i, int64_t n, float* scores) const {
  if (!mask_) return;
  const int64_t offset = mask_.RowOffset(b, h, i);
  if (const float* added = mask_.Floats(offset)) return AddTo(added, n, scores);
  float added[kTileKeys];
  mask_.Load(offset, 0, n, added);
  AddTo(added, n, scores);
}

void Problem::MaskRow(const Tile& tile, int64_t c, int64_t first, int64_t n, float* scores) const {
  if (!mask_) return;
  float added[kTileKeys];
  mask_.Load(tile.mask[c], first, n, added);
  AddTo(added, n, scores);
}

void Problem::Mask(const Tile& tile, int64_t first, int64_t n, float* scores) const {
  if (mask_) {
    float added[kTileKeys];
    for (int64_t c = 0; c < (tile.same_mask ? 1 : tile.count); ++c) {
      mask_.Load(tile.mask[c], first, n, added);
      if (tile.same_mask) {
        AddToRows(added, n, tile.columns, scores);
      } else {
        for (int64_t j = 0; j < n; ++j) scores[j * tile.columns + c] += added[j];
      }
    }
  }
  if (first + n <= tile.all_keys) return;
  int32_t ends[kTileQueries] = {};
  for (int64_t c = 0; c < tile.count; ++c)
    ends[c] = static_cast<int32_t>(std::clamp<int64_t>(tile.keys[c] - first, 0, n));
  CutColumns(ends, std::max<int64_t>(tile.all_keys - first, 0), n, tile.columns, scores);
}

void Problem::DropoutRow(const Tile& tile, int64_t c, int64_t first, int64_t n,
                         float* factors) const {
  DropoutRow((tile.batch * geometry_.heads + tile.head[c]) * geometry_.queries + tile.query[c],
             first, n, factors);
}

void Problem::DropoutRow(int64_t row, int64_t first, int64_t n, float* factors) const {
  uint32_t words[kTileKeys];
  PhiloxFill(dropout_.seed, dropout_.Row(row) + static_cast<uint64_t>(first), n, words);
  const auto factor = static_cast<float>(dropout_.factor);
  for (int64_t j = 0; j < n; ++j) factors[j] = words[j] < dropout_.threshold ? 0.0f : factor;
}

void Problem::DropoutFactors(const Tile& tile, int64_t first, int64_t n, float* factors) const {
  float row[kTileKeys];
  std::fill_n(factors, n * tile.columns, 1.0f);  // of the columns behind the queries
  for (int64_t c = 0; c < tile.count; ++c) {
    DropoutRow(tile, c, first, n, row);
    for (int64_t j = 0; j < n; ++j) factors[j * tile.columns + c] = row[j];
  }
}

template <class T>
void PackRows(const T* from, int64_t row_step, int64_t rows, int64_t padded, int64_t length,
              float* to, int64_t to_step) {
  Widen(from, row_step, rows, length, 1.0f, to, to_step);
  std::fill(to + rows * to_step, to + padded * to_step, 0.0f);
}

template <class T>
void LoadQueries(const AttentionRows<const T>& x, const Tile& tile, int64_t length, float factor,
                 float* rows, int64_t row_step, float* turned) {
  for (int64_t c = 0; c < tile.count; ++c)
    Widen(x.At(tile.batch, tile.head[c], tile.query[c]), 0, 1, length, factor, rows + c * row_step,
          row_step);
  std::fill(rows + tile.count * row_step, rows + tile.columns * row_step, 0.0f);
  Turn(rows, row_step, tile.columns, length, turned, tile.columns);
}

template <class T>
void StoreQueries(const float* turned, const Tile& tile, int64_t length, const float* factors,
                  float* scratch, const AttentionRows<T>& y) {
  const int64_t step = RowStep(length);
  Turn(turned, tile.columns, length, tile.columns, scratch, step);
  for (int64_t c = 0; c < tile.count; ++c)
    StoreScaled(scratch + c * step, length, factors[c],
                y.At(tile.batch, tile.head[c], tile.query[c]));
}

void CopyRows(const BFloat16* from, int64_t row_step, int64_t rows, int64_t padded, int64_t length,
              uint32_t* to, int64_t to_step) {
  for (int64_t r = 0; r < rows; ++r, to += to_step) {
    if (length % 2 == 1) to[length / 2] = 0;
    std::memcpy(to, from + r * row_step, static_cast<size_t>(length) * sizeof(BFloat16));
    std::fill(to + CeilDivide(length, 2), to + to_step, 0u);
  }
  std::fill_n(to, (padded - rows) * to_step, 0u);
}

SINGA_MULTI_ISA void JoinRows(const BFloat16* from, int64_t row_step, int64_t rows, int64_t length,
                              uint32_t* to, int64_t to_step) {
  for (int64_t r = 0; r < rows; r += 2, to += to_step) {
    const BFloat16 *low = from + r * row_step, *high = low + row_step;
    if (r + 1 < rows) {
#pragma omp simd
      for (int64_t i = 0; i < length; ++i)
        to[i] = uint32_t{low[i].bits} | uint32_t{high[i].bits} << 16;
    } else {
#pragma omp simd
      for (int64_t i = 0; i < length; ++i) to[i] = low[i].bits;
    }
    for (int64_t i = length; i < to_step; ++i) to[i] = 0;
  }
}

void LoadQueryWords(const AttentionRows<const BFloat16>& x, const Tile& tile, int64_t length,
                    uint32_t* rows, int64_t row_step, uint32_t* turned) {
  for (int64_t c = 0; c < tile.count; ++c)
    CopyRows(x.At(tile.batch, tile.head[c], tile.query[c]), 0, 1, 1, length, rows + c * row_step,
             row_step);
  std::fill(rows + tile.count * row_step, rows + tile.columns * row_step, 0u);
  Turn(rows, row_step, tile.columns, CeilDivide(length, 2), turned, tile.columns);
}

SINGA_MULTI_ISA bool UpdateSoftmax(float* scores, int64_t keys, int64_t columns, float* most,
                                   float* sum, float* factor) {
  float shift[kTileQueries], total[kTileQueries];
  std::copy_n(most, columns, shift);
  for (int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) {
      const float score = scores[j * columns + c];
      shift[c] = score > shift[c] ? score : shift[c];  // a NaN stays in the scores
    }
  }
  bool changed = false;
  for (int64_t c = 0; c < columns; ++c) {
    const float now = shift[c];
    changed |= now != most[c];
    shift[c] = now == -kInf ? 0.0f : now;  // no key yet: all weights are exp(-inf)
    factor[c] = Weight(most[c] - shift[c]);
    most[c] = now;
    total[c] = 0;
  }
  for (int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) {
      const float weight = Weight(scores[j * columns + c] - shift[c]);
      scores[j * columns + c] = weight;
      total[c] += weight;
    }
  }
  for (int64_t c = 0; c < columns; ++c) sum[c] = sum[c] * factor[c] + total[c];
  return changed;
}

SINGA_MULTI_ISA float UpdateSoftmaxRow(float* scores, int64_t keys, float* most, float* sum) {
  float now = *most, total = 0;
#pragma omp simd reduction(max : now)
  for (int64_t j = 0; j < keys; ++j) now = scores[j] > now ? scores[j] : now;
  const float shift = now == -kInf ? 0.0f : now;
  const float factor = Weight(*most - shift);
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] = Weight(scores[j] - shift);
    total += scores[j];
  }
  *most = now;
  *sum = *sum * factor + total;
  return factor;
}

float LogSumExp(float most, float sum) {
  if (sum == 0) return -kInf;
  return most == -kInf ? sum : most + std::log(sum);  // NaN stays NaN
}

template <class T>
SINGA_MULTI_ISA float Dot(const T* a, const T* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += Convert<float>(a[i]) * Convert<float>(b[i]);
  return sum;
}

SINGA_MULTI_ISA void ScaleColumns(float* x, int64_t rows, int64_t columns, const float* factors) {
  for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) x[r * columns + c] *= factors[c];
}

SINGA_MULTI_ISA void AddTo(const float* y, int64_t n, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

SINGA_MULTI_ISA void MultiplyBy(const float* y, int64_t n, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= y[i];
}

SINGA_MULTI_ISA void WeightsAndGradients(float* scores, float* products, const float* z,
                                         int64_t keys, int64_t columns, const float* logsumexp,
                                         const float* along) {
  for (int64_t j = 0; j < keys; ++j) {
    float *s = scores + j * columns, *p = products + j * columns;
    if (z) {
      const float* factors = z + j * columns;
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) {
        const float weight = Weight(s[c] - logsumexp[c]);
        s[c] = weight * factors[c];
        p[c] = weight * (factors[c] * p[c] - along[c]);
      }
    } else {
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) {
        const float weight = Weight(s[c] - logsumexp[c]);
        s[c] = weight;
        p[c] = weight * (p[c] - along[c]);
      }
    }
  }
}

SINGA_MULTI_ISA void RowWeightsAndGradients(float* scores, float* products, const float* z,
                                            int64_t keys, float logsumexp, float along) {
  if (z) {
#pragma omp simd
    for (int64_t j = 0; j < keys; ++j) {
      const float weight = Weight(scores[j] - logsumexp);
      scores[j] = weight * z[j];
      products[j] = weight * (z[j] * products[j] - along);
    }
  } else {
#pragma omp simd
    for (int64_t j = 0; j < keys; ++j) {
      const float weight = Weight(scores[j] - logsumexp);
      scores[j] = weight;
      products[j] = weight * (products[j] - along);
    }
  }
}

namespace {

/// to[j · step + c] += from[j · columns + c], for n rows of `width`.
SINGA_MULTI_ISA void AddBlock(const float* from, int64_t columns, int64_t n, int64_t width,
                              float* to, int64_t step) {
  for (int64_t j = 0; j < n; ++j)
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) to[j * step + c] += from[j * columns + c];
}

/// to[j · step] += Σ over the row.
SINGA_MULTI_ISA void AddRowSums(const float* from, int64_t columns, int64_t n, int64_t width,
                                float* to, int64_t step) {
  for (int64_t j = 0; j < n; ++j) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < width; ++c) sum += from[j * columns + c];
    to[j * step] += sum;
  }
}

}  // namespace

void MaskSums::Add(const Tile& tile, int64_t first_head, int64_t first, int64_t n,
                   const float* gradients, float* sums) const {
  const int64_t step = keys == 1 ? 0 : queries;  // the rows of all keys are one
  for (int64_t begin = 0, end = 0; begin < tile.count; begin = end) {
    // Neighbouring queries of one head.
    while (end < tile.count && tile.head[end] == tile.head[begin]) ++end;
    float* to = sums + (heads == 1 ? 0 : tile.head[begin] - first_head) * keys * queries +
                (keys == 1 ? 0 : first) * queries;
    if (queries == 1) {
      AddRowSums(gradients + begin, tile.columns, n, end - begin, to, step);
    } else {
      AddBlock(gradients + begin, tile.columns, n, end - begin, to + tile.query[begin], step);
    }
  }
}

void MaskSums::Store(const float* sums, int64_t count, int64_t apart, float* out) const {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const float* from = sums + (h * keys + j) * queries + i;
        float sum = *from;
        for (int64_t part = 1; part < count; ++part) sum += from[part * apart];
        *out++ = sum;
      }
}

template <class T>
SINGA_MULTI_ISA void StoreScaled(const float* x, int64_t n, float factor, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Convert<T>(x[i] * factor);
}

template <class T>
SINGA_MULTI_ISA void StoreSum(const float* from, int64_t count, int64_t apart, int64_t n, T* to) {
  if (count == 1) return StoreScaled(from, n, 1.0f, to);
  for (int64_t i = 0; i < n; ++i) {
    float sum = from[i];
    for (int64_t part = 1; part < count; ++part) sum += from[part * apart + i];
    to[i] = Convert<T>(sum);
  }
}

#define SINGA_INSTANTIATE(T)                                                                       \
  template void PackRows<T>(const T*, int64_t, int64_t, int64_t, int64_t, float*, int64_t);        \
  template void LoadQueries<T>(const AttentionRows<const T>&, const Tile&, int64_t, float, float*, \
                               int64_t, float*);                                                   \
  template void StoreQueries<T>(const float*, const Tile&, int64_t, const float*, float*,          \
                                const AttentionRows<T>&);                                          \
  template float Dot<T>(const T*, const T*, int64_t);                                              \
  template void StoreScaled<T>(const float*, int64_t, float, T*);                                  \
  template void StoreSum<T>(const float*, int64_t, int64_t, int64_t, T*)
SINGA_INSTANTIATE(float);
SINGA_INSTANTIATE(BFloat16);
#undef SINGA_INSTANTIATE

}  // namespace singa::cpu::attention
