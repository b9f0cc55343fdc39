#include "backend/onednn/max_pooling_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/dtype_switch.h"
#include "core/parallel.h"

namespace singa::onednn {
namespace {

// Whatever a loop calls has to become part of it: by itself it would be compiled for the baseline.
#define SINGA_INLINE inline __attribute__((always_inline))
#define SINGA_INLINE_LAMBDA __attribute__((always_inline))

/// Lanes that are worked on at a time. GCC 12 takes comparisons of wider vectors than the CPU's
/// apart.
template <int64_t kLanes>
struct Vectors {
  using Floats __attribute__((vector_size(kLanes * sizeof(float)))) = float;
  using Ints __attribute__((vector_size(kLanes * sizeof(int32_t)))) = int32_t;
};

template <class T, class V, class Count>
SINGA_INLINE void Load(V& v, const T* from, Count n) {
  if constexpr (sizeof(v[0]) == sizeof(T)) {
    std::memcpy(&v, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t l = 0; l < n; ++l) v[l] = Convert<float>(from[l]);
  }
}

template <class T, class V, class Count>
SINGA_INLINE void Store(T* to, const V& v, Count n) {
  if constexpr (sizeof(v[0]) == sizeof(T)) {
    std::memcpy(to, &v, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t l = 0; l < n; ++l) to[l] = Convert<T>(v[l]);
  }
}

/// Calls body(lane, n) for n lanes from `lane` on, until all have had their turn; n is a constant
/// but where there are fewer. The last ones overlap those before, which changes no result.
template <int64_t kLanes, class Body>
SINGA_INLINE void ForVectors(int64_t filled, const Body& body) {
  if (filled < kLanes) return body(int64_t{0}, filled);
  for (int64_t lane = 0; lane < filled; lane += kLanes)
    body(std::min(lane, filled - kLanes), std::integral_constant<int64_t, kLanes>());
}

/// Taps of a window: rows and columns, constants where they are usual ones, and how far they lie
/// apart in memory and as positions.
template <class Rows, class Columns>
struct Taps {
  Rows rows;
  Columns columns;
  int64_t row_step, column_step;
  int32_t row_distance, column_distance;
};

/// The maximum of a window and where it is. Offered from the last tap to the first: the first of
/// equal values, or of NaNs, stays.
template <int64_t kLanes>
struct Maximum {
  using Floats = typename Vectors<kLanes>::Floats;
  using Ints = typename Vectors<kLanes>::Ints;

  SINGA_INLINE void Offer(const Floats& value, int32_t distance) {
    const Ints better = (value >= best) | (value != value);
    best = better ? value : best;
    at = better ? Ints{} + distance : at;
  }
  SINGA_INLINE void Finish() {}

  Floats best = Floats{} - std::numeric_limits<float>::infinity();
  Ints at = Ints{} - 1;  ///< distance from the first tap
};

/// The maximum alone, where nobody asks for its place: a comparison less waits for the one before.
template <int64_t kLanes>
struct MaximumAlone {
  using Floats = typename Vectors<kLanes>::Floats;

  SINGA_INLINE void Offer(const Floats& value, int32_t) {
    best = value >= best ? value : best;
    nan = value != value ? value : nan;
  }
  SINGA_INLINE void Finish() { best = nan != nan ? nan : best; }

  Floats best = Floats{} - std::numeric_limits<float>::infinity();
  Floats nan = {};  ///< the first NaN, if there is one
};

/// Offers the values of one window, whose first tap is at `in`.
template <class T, class Best, class Count, class Rows, class Columns>
SINGA_INLINE void OfferTaps(const T* in, Count n, const Taps<Rows, Columns>& taps, Best& best) {
  for (int64_t kh = taps.rows - 1; kh >= 0; --kh) {
    for (int64_t kw = taps.columns - 1; kw >= 0; --kw) {
      typename Best::Floats value = {};
      Load(value, in + kh * taps.row_step + kw * taps.column_step, n);
      best.Offer(value, static_cast<int32_t>(kh) * taps.row_distance +
                            static_cast<int32_t>(kw) * taps.column_distance);
    }
  }
}

/// Calls offer(rows, columns) with the taps of a window, as constants where they are usual ones.
template <class T, class Offer>
SINGA_INLINE void WithTaps(int64_t rows, int64_t columns, const Offer& offer) {
  if constexpr (std::is_same_v<T, float>) {  // GCC 12 fails where values are converted
    using Two = std::integral_constant<int64_t, 2>;
    using Three = std::integral_constant<int64_t, 3>;
    if (rows == 3 && columns == 3) return offer(Three(), Three());
    if (rows == 2 && columns == 2) return offer(Two(), Two());
  }
  offer(rows, columns);
}

/// How far the taps of a window lie apart.
inline int64_t Dilation(const WindowAxis& axis) {
  return axis.position(0, 1) - axis.position(0, 0);
}

/// One row of windows of one block: `n` lanes from `lane` on. y may be null; position is
/// where Best knows none.
template <class Best, class T, class Count>
SINGA_INLINE void MaxRow(const MaxWindows& g, const T* x, int64_t top, int64_t oh, int64_t lane,
                         Count n, T* y, int32_t* position) {
  const WindowAxis& columns = g.windows.columns;
  const WindowAxis::Range down = g.windows.rows.taps(oh);
  const int64_t h = g.windows.rows.position(oh, down.first);
  const int64_t row_dilation = Dilation(g.windows.rows), column_dilation = Dilation(columns);
  const T* row = x + (h - top) * g.x.row_step + lane;
  for (int64_t ow = 0; ow < columns.windows(); ++ow) {
    const WindowAxis::Range across = columns.taps(ow);
    const int64_t w = columns.position(ow, across.first);
    Best best;
    WithTaps<T>(down.size(), across.size(),
                [&](auto count_down, auto count_across) SINGA_INLINE_LAMBDA {
                  const Taps<decltype(count_down), decltype(count_across)> taps{
                      count_down,
                      count_across,
                      row_dilation * g.x.row_step,
                      column_dilation * g.x.column_step,
                      static_cast<int32_t>(row_dilation * g.x.width),
                      static_cast<int32_t>(column_dilation)};
                  OfferTaps(row + w * g.x.column_step, n, taps, best);
                });
    best.Finish();
    if (y) Store(y + ow * g.y.column_step + lane, best.best, n);
    if constexpr (requires { best.at; }) {
      const bool any = down.size() > 0 && across.size() > 0;
      if (any) best.at += static_cast<int32_t>(h * g.x.width + w);  // one of the taps is it
      Store(position + ow * g.y.column_step + lane, best.at, n);
    }
  }
}

#if defined(__x86_64__)
#define SINGA_HAS_MAX_ROW_AVX512
#define SINGA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

SINGA_AVX512 inline __m512 LoadLanes(const float* from, __mmask16 lanes) {
  return _mm512_maskz_loadu_ps(lanes, from);
}
// (Unmasked conversions and shifts make GCC 12 warn of an uninitialised register.)
SINGA_AVX512 inline __m512 LoadLanes(const BFloat16* from, __mmask16 lanes) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, from));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
}
SINGA_AVX512 inline void StoreLanes(float* to, __mmask16 lanes, __m512 value) {
  _mm512_mask_storeu_ps(to, lanes, value);
}
/// Of values that were bfloat16.
SINGA_AVX512 inline void StoreLanes(BFloat16* to, __mmask16 lanes, __m512 value) {
  const __m512i high = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(value), 16);
  _mm256_mask_storeu_epi16(to, lanes, _mm512_maskz_cvtepi32_epi16(0xffff, high));
}

/// Of any values.
SINGA_AVX512 inline void StoreRounded(float* to, __mmask16 lanes, __m512 value) {
  StoreLanes(to, lanes, value);
}
SINGA_AVX512 inline void StoreRounded(BFloat16* to, __mmask16 lanes, __m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd =
      _mm512_and_epi32(_mm512_maskz_srli_epi32(0xffff, bits, 16), _mm512_set1_epi32(1));
  const __m512i carried = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_or_epi32(carried, nan, bits, _mm512_set1_epi32(0x400000));
  StoreLanes(to, lanes, _mm512_castsi512_ps(rounded));
}

/// Those of 16 lanes from `lane` on that exist.
inline __mmask16 LanesFrom(int64_t lane, int64_t filled) {
  return static_cast<__mmask16>((1u << std::min<int64_t>(16, filled - lane)) - 1);
}

/// The same with AVX-512, where GCC 12 takes comparisons of vectors apart. All lanes of a window
/// before the next: of channels-last, its taps' cache lines are then read once.
template <class T>
SINGA_AVX512 void MaxRowAvx512(const MaxWindows& g, const T* x, int64_t top, int64_t oh,
                               int64_t filled, T* y, int32_t* position) {
  const WindowAxis& rows = g.windows.rows;
  const WindowAxis& columns = g.windows.columns;
  const WindowAxis::Range down = rows.taps(oh);
  const int64_t top_tap = rows.position(oh, down.first), row_dilation = Dilation(rows);
  const int64_t column_dilation = Dilation(columns);
  const int64_t row_step = row_dilation * g.x.row_step;
  const int64_t column_step = column_dilation * g.x.column_step;
  for (int64_t ow = 0; ow < columns.windows(); ++ow) {
    const WindowAxis::Range across = columns.taps(ow);
    const int64_t left_tap = columns.position(ow, across.first);
    const T* window = x + (top_tap - top) * g.x.row_step + left_tap * g.x.column_step;
    const int64_t first = top_tap * g.x.width + left_tap;
    for (int64_t lane = 0; lane < filled; lane += 16) {
      const auto lanes = LanesFrom(lane, filled);
      __m512 best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      __m512i at = _mm512_set1_epi32(-1);
      for (int64_t kh = down.size() - 1; kh >= 0; --kh) {
        const T* row = window + kh * row_step + lane;
        const int64_t row_at = first + kh * row_dilation * g.x.width;
        for (int64_t kw = across.size() - 1; kw >= 0; --kw) {
          const __m512 value = LoadLanes(row + kw * column_step, lanes);
          const __mmask16 better = _mm512_cmp_ps_mask(value, best, _CMP_GE_OQ) |
                                   _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
          best = _mm512_mask_mov_ps(best, better, value);
          at = _mm512_mask_mov_epi32(
              at, better, _mm512_set1_epi32(static_cast<int>(row_at + kw * column_dilation)));
        }
      }
      const int64_t to = ow * g.y.column_step + lane;
      if (y) StoreLanes(y + to, lanes, best);
      if (position) _mm512_mask_storeu_epi32(position + to, lanes, at);
    }
  }
}

/// GradientRow likewise.
template <class T>
SINGA_AVX512 void GradientRowAvx512(const MaxWindows& g, const T* dy, const int32_t* position,
                                    int64_t h, int64_t filled, T* dx) {
  const WindowAxis::Range down = g.windows.rows.over(h);
  for (int64_t w = 0; w < g.windows.columns.size(); ++w) {
    const WindowAxis::Range across = g.windows.columns.over(w);
    const __m512i here = _mm512_set1_epi32(static_cast<int>(h * g.x.width + w));
    for (int64_t lane = 0; lane < filled; lane += 16) {
      const auto lanes = LanesFrom(lane, filled);
      __m512 sum = _mm512_setzero_ps();
      for (int64_t oh = down.first; oh < down.last; ++oh) {
        for (int64_t ow = across.first; ow < across.last; ++ow) {
          const int64_t o = oh * g.y.row_step + ow * g.y.column_step + lane;
          const __m512i at = _mm512_maskz_loadu_epi32(lanes, position + o);
          sum = _mm512_mask_add_ps(sum, _mm512_cmpeq_epi32_mask(at, here), sum,
                                   LoadLanes(dy + o, lanes));
        }
      }
      StoreRounded(dx + w * g.x.column_step + lane, lanes, sum);
    }
  }
}

/// Whether this CPU has the instructions.
bool HasMaxRowAvx512() {
  static const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has;
}
#endif

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void MaxRowOfBlock(const MaxWindows& g, const T* x, int64_t top, int64_t oh,
                                   int64_t filled, T* y, int32_t* position) {
  ForVectors<kLanes>(filled, [&](int64_t lane, auto n) SINGA_INLINE_LAMBDA {
    if (position) {
      MaxRow<Maximum<kLanes>>(g, x, top, oh, lane, n, y, position);
    } else {
      MaxRow<MaximumAlone<kLanes>>(g, x, top, oh, lane, n, y, position);
    }
  });
}

/// One row of x of one block: adds up the windows whose maximum is there.
template <int64_t kLanes, class T, class Count>
SINGA_INLINE void GradientRow(const MaxWindows& g, const T* dy, const int32_t* position, int64_t h,
                              int64_t lane, Count n, T* dx) {
  using Floats = typename Vectors<kLanes>::Floats;
  using Ints = typename Vectors<kLanes>::Ints;
  const WindowAxis& rows = g.windows.rows;
  const WindowAxis& columns = g.windows.columns;
  for (int64_t w = 0; w < columns.size(); ++w) {
    const auto here = static_cast<int32_t>(h * g.x.width + w);
    Floats sum = {};
    for (int64_t oh = rows.over(h).first; oh < rows.over(h).last; ++oh) {
      for (int64_t ow = columns.over(w).first; ow < columns.over(w).last; ++ow) {
        const int64_t o = oh * g.y.row_step + ow * g.y.column_step + lane;
        Floats gradient = {};
        Ints from = {};
        Load(gradient, dy + o, n);
        Load(from, position + o, n);
        sum += from == here ? gradient : Floats{};
      }
    }
    Store(dx + w * g.x.column_step + lane, sum, n);
  }
}

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void GradientRowOfBlock(const MaxWindows& g, const T* dy, const int32_t* position,
                                        int64_t h, int64_t filled, T* dx) {
  ForVectors<kLanes>(filled, [&](int64_t lane, auto n) SINGA_INLINE_LAMBDA {
    GradientRow<kLanes>(g, dy, position, h, lane, n, dx);
  });
}

}  // namespace

template <class T>
void MaxRows(const MaxWindows& g, const T* x, int64_t top, int64_t oh, int64_t filled, T* y,
             int32_t* position) {
#ifdef SINGA_HAS_MAX_ROW_AVX512
  if (HasMaxRowAvx512()) return MaxRowAvx512(g, x, top, oh, filled, y, position);
#endif
  MaxRowOfBlock<8>(g, x, top, oh, filled, y, position);
}

template <class T>
void GradientRows(const MaxWindows& g, const T* dy, const int32_t* position, int64_t h,
                  int64_t filled, T* dx) {
#ifdef SINGA_HAS_MAX_ROW_AVX512
  // GCC does blocks of 16 floats as well, and has the number of lanes as a constant.
  if (HasMaxRowAvx512() && (filled > 16 || std::is_same_v<T, BFloat16>))
    return GradientRowAvx512(g, dy, position, h, filled, dx);
#endif
  if (VectorLanes() == 16) {
    GradientRowOfBlock<16>(g, dy, position, h, filled, dx);
  } else {
    GradientRowOfBlock<8>(g, dy, position, h, filled, dx);
  }
}

#define SINGA_INSTANTIATE(T)                                                                   \
  template void MaxRows(const MaxWindows&, const T*, int64_t, int64_t, int64_t, T*, int32_t*); \
  template void GradientRows(const MaxWindows&, const T*, const int32_t*, int64_t, int64_t, T*)
SINGA_INSTANTIATE(float);
SINGA_INSTANTIATE(BFloat16);
#undef SINGA_INSTANTIATE

}  // namespace singa::onednn
