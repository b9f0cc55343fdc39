#include "backend/cpu/pooling/max_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"

namespace singa::cpu {
namespace {

// A loop's callees must be inlined; on their own, they would be compiled for the baseline.

/// Vectors of kLanes lanes, which are processed together. kLanes matches the CPU's vectors, because
/// GCC 12 splits comparisons of wider ones into single lanes.
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

/// Calls body(lane, n) for vectors of n lanes that cover [0, filled). n is the constant kLanes
/// unless there are fewer lanes. The last vector may overlap the one before, which does not change
/// results.
template <int64_t kLanes, class Body>
SINGA_INLINE void ForVectors(int64_t filled, const Body& body) {
  if (filled < kLanes) return body(int64_t{0}, filled);
  for (int64_t lane = 0; lane < filled; lane += kLanes)
    body(std::min(lane, filled - kLanes), std::integral_constant<int64_t, kLanes>());
}

/// Distances between neighbouring taps of a window along each axis, in memory and in positions.
struct TapSteps {
  explicit TapSteps(const MaxWindows& g)
      : plane(g.windows.planes.dilation() * g.x.plane_step),
        row(g.windows.rows.dilation() * g.x.row_step),
        column(g.windows.columns.dilation() * g.x.column_step),
        plane_distance(g.windows.planes.dilation() * g.x.height * g.x.width),
        row_distance(g.windows.rows.dilation() * g.x.width),
        column_distance(g.windows.columns.dilation()) {}
  int64_t plane, row, column;
  int64_t plane_distance, row_distance, column_distance;
};

/// The taps along planes and rows of a row of windows: those inside the input, and the first one.
struct Taps {
  Taps(const PoolWindows& windows, Row o)
      : through(windows.planes.taps(o.plane)),
        down(windows.rows.taps(o.row)),
        plane(windows.planes.position(o.plane, through.first)),
        row(windows.rows.position(o.row, down.first)) {}
  WindowAxis::Range through, down;
  int64_t plane, row;
};

/// The position in x of a row's element w.
inline int32_t PositionOf(const MaxWindows& g, Row i, int64_t w) {
  return static_cast<int32_t>((i.plane * g.x.height + i.row) * g.x.width + w);
}

/// The maximum of a window and its position. Taps are compared from last to first, so that the
/// first of equal values or NaNs wins.
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
  Ints at = Ints{} - 1;  ///< offset from the first tap
};

/// The maximum without its position. Fewer comparisons depend on the previous one.
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

/// Compares the taps of one window, whose first tap is at `in`.
template <class T, class Best, class Count, class Planes, class Rows, class Columns>
SINGA_INLINE void OfferTaps(const T* in, Count n, Planes planes, Rows rows, Columns columns,
                            const TapSteps& steps, Best& best) {
  for (int64_t kd = planes - 1; kd >= 0; --kd) {
    for (int64_t kh = rows - 1; kh >= 0; --kh) {
      for (int64_t kw = columns - 1; kw >= 0; --kw) {
        typename Best::Floats value = {};
        Load(value, in + kd * steps.plane + kh * steps.row + kw * steps.column, n);
        best.Offer(value, static_cast<int32_t>(kd * steps.plane_distance + kh * steps.row_distance +
                                               kw * steps.column_distance));
      }
    }
  }
}

/// Calls offer(planes, rows, columns) with the number of taps, as constants for common sizes.
template <class T, class Offer>
SINGA_INLINE void WithTaps(int64_t planes, int64_t rows, int64_t columns, const Offer& offer) {
  if constexpr (std::is_same_v<T, float>) {  // GCC 12 fails if values are converted
    using One = std::integral_constant<int64_t, 1>;
    using Two = std::integral_constant<int64_t, 2>;
    using Three = std::integral_constant<int64_t, 3>;
    if (planes == 1 && rows == 3 && columns == 3) return offer(One(), Three(), Three());
    if (planes == 1 && rows == 2 && columns == 2) return offer(One(), Two(), Two());
  }
  offer(planes, rows, columns);
}

/// One row of windows of one block, for `n` lanes from `lane` on. y may be null; position must be
/// null if Best keeps no positions.
template <class Best, class T, class Count>
SINGA_INLINE void MaxRow(const MaxWindows& g, const T* x, int64_t top, Row o, int64_t lane, Count n,
                         T* y, int32_t* position) {
  const WindowAxis& columns = g.windows.columns;
  const Taps taps(g.windows, o);
  const TapSteps steps(g);
  const T* row = x + taps.plane * g.x.plane_step + (taps.row - top) * g.x.row_step + lane;
  for (int64_t ow = 0; ow < columns.windows(); ++ow) {
    const WindowAxis::Range across = columns.taps(ow);
    const int64_t w = columns.position(ow, across.first);
    Best best;
    WithTaps<T>(taps.through.size(), taps.down.size(), across.size(),
                [&](auto through, auto down, auto count) SINGA_INLINE_LAMBDA {
                  OfferTaps(row + w * g.x.column_step, n, through, down, count, steps, best);
                });
    best.Finish();
    if (y) Store(y + ow * g.y.column_step + lane, best.best, n);
    if constexpr (requires { best.at; }) {
      const bool any = taps.through.size() > 0 && taps.down.size() > 0 && across.size() > 0;
      if (any) best.at += PositionOf(g, {taps.plane, taps.row}, w);
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
// Unmasked conversions and shifts make GCC 12 warn of an uninitialised register.
SINGA_AVX512 inline __m512 LoadLanes(const BFloat16* from, __mmask16 lanes) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, from));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
}
SINGA_AVX512 inline void StoreLanes(float* to, __mmask16 lanes, __m512 value) {
  _mm512_mask_storeu_ps(to, lanes, value);
}
/// For values that came from bfloat16.
SINGA_AVX512 inline void StoreLanes(BFloat16* to, __mmask16 lanes, __m512 value) {
  const __m512i high = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(value), 16);
  _mm256_mask_storeu_epi16(to, lanes, _mm512_maskz_cvtepi32_epi16(0xffff, high));
}

/// For any values.
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

/// A mask of the lanes below `filled` in the 16 lanes from `lane` on.
inline __mmask16 LanesFrom(int64_t lane, int64_t filled) {
  return static_cast<__mmask16>((1u << std::min<int64_t>(16, filled - lane)) - 1);
}

/// MaxRow with AVX-512, for comparisons that GCC 12 splits into single lanes. It processes all
/// lanes of a window before the next window, so that with channels-last the cache lines of its taps
/// are read once.
template <class T>
SINGA_AVX512 void MaxRowAvx512(const MaxWindows& g, const T* x, int64_t top, Row o, int64_t filled,
                               T* y, int32_t* position) {
  const WindowAxis& columns = g.windows.columns;
  const Taps taps(g.windows, o);
  const TapSteps steps(g);
  const T* first_row = x + taps.plane * g.x.plane_step + (taps.row - top) * g.x.row_step;
  for (int64_t ow = 0; ow < columns.windows(); ++ow) {
    const WindowAxis::Range across = columns.taps(ow);
    const int64_t left_tap = columns.position(ow, across.first);
    const T* window = first_row + left_tap * g.x.column_step;
    const int64_t first = PositionOf(g, {taps.plane, taps.row}, left_tap);
    for (int64_t lane = 0; lane < filled; lane += 16) {
      const auto lanes = LanesFrom(lane, filled);
      __m512 best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      __m512i at = _mm512_set1_epi32(-1);
      for (int64_t kd = taps.through.size() - 1; kd >= 0; --kd) {
        for (int64_t kh = taps.down.size() - 1; kh >= 0; --kh) {
          const T* row = window + kd * steps.plane + kh * steps.row + lane;
          const int64_t row_at = first + kd * steps.plane_distance + kh * steps.row_distance;
          for (int64_t kw = across.size() - 1; kw >= 0; --kw) {
            const __m512 value = LoadLanes(row + kw * steps.column, lanes);
            const __mmask16 better = _mm512_cmp_ps_mask(value, best, _CMP_GE_OQ) |
                                     _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
            best = _mm512_mask_mov_ps(best, better, value);
            at = _mm512_mask_mov_epi32(
                at, better,
                _mm512_set1_epi32(static_cast<int>(row_at + kw * steps.column_distance)));
          }
        }
      }
      const int64_t to = ow * g.y.column_step + lane;
      if (y) StoreLanes(y + to, lanes, best);
      if (position) _mm512_mask_storeu_epi32(position + to, lanes, at);
    }
  }
}

/// GradientRow with AVX-512.
template <class T>
SINGA_AVX512 void GradientRowAvx512(const MaxWindows& g, const T* dy, const int32_t* position,
                                    Row i, int64_t filled, T* dx) {
  const WindowAxis::Range through = g.windows.planes.over(i.plane);
  const WindowAxis::Range down = g.windows.rows.over(i.row);
  for (int64_t w = 0; w < g.windows.columns.size(); ++w) {
    const WindowAxis::Range across = g.windows.columns.over(w);
    const __m512i here = _mm512_set1_epi32(PositionOf(g, i, w));
    for (int64_t lane = 0; lane < filled; lane += 16) {
      const auto lanes = LanesFrom(lane, filled);
      __m512 sum = _mm512_setzero_ps();
      for (int64_t od = through.first; od < through.last; ++od) {
        for (int64_t oh = down.first; oh < down.last; ++oh) {
          const int64_t row = od * g.y.plane_step + oh * g.y.row_step + lane;
          for (int64_t ow = across.first; ow < across.last; ++ow) {
            const int64_t o = row + ow * g.y.column_step;
            const __m512i at = _mm512_maskz_loadu_epi32(lanes, position + o);
            sum = _mm512_mask_add_ps(sum, _mm512_cmpeq_epi32_mask(at, here), sum,
                                     LoadLanes(dy + o, lanes));
          }
        }
      }
      StoreRounded(dx + w * g.x.column_step + lane, lanes, sum);
    }
  }
}

/// Whether this CPU has the instructions of MaxRowAvx512.
bool HasMaxRowAvx512() {
  static const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has;
}
#endif

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void MaxRowOfBlock(const MaxWindows& g, const T* x, int64_t top, Row o,
                                   int64_t filled, T* y, int32_t* position) {
  ForVectors<kLanes>(filled, [&](int64_t lane, auto n) SINGA_INLINE_LAMBDA {
    if (position) {
      MaxRow<Maximum<kLanes>>(g, x, top, o, lane, n, y, position);
    } else {
      MaxRow<MaximumAlone<kLanes>>(g, x, top, o, lane, n, y, position);
    }
  });
}

/// One row of dx of one block: sums the gradients of the windows whose maximum is there.
template <int64_t kLanes, class T, class Count>
SINGA_INLINE void GradientRow(const MaxWindows& g, const T* dy, const int32_t* position, Row i,
                              int64_t lane, Count n, T* dx) {
  using Floats = typename Vectors<kLanes>::Floats;
  using Ints = typename Vectors<kLanes>::Ints;
  const WindowAxis& columns = g.windows.columns;
  const WindowAxis::Range through = g.windows.planes.over(i.plane);
  const WindowAxis::Range down = g.windows.rows.over(i.row);
  for (int64_t w = 0; w < columns.size(); ++w) {
    const int32_t here = PositionOf(g, i, w);
    Floats sum = {};
    for (int64_t od = through.first; od < through.last; ++od) {
      for (int64_t oh = down.first; oh < down.last; ++oh) {
        for (int64_t ow = columns.over(w).first; ow < columns.over(w).last; ++ow) {
          const int64_t o = od * g.y.plane_step + oh * g.y.row_step + ow * g.y.column_step + lane;
          Floats gradient = {};
          Ints from = {};
          Load(gradient, dy + o, n);
          Load(from, position + o, n);
          sum += from == here ? gradient : Floats{};
        }
      }
    }
    Store(dx + w * g.x.column_step + lane, sum, n);
  }
}

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void GradientRowOfBlock(const MaxWindows& g, const T* dy, const int32_t* position,
                                        Row i, int64_t filled, T* dx) {
  ForVectors<kLanes>(filled, [&](int64_t lane, auto n) SINGA_INLINE_LAMBDA {
    GradientRow<kLanes>(g, dy, position, i, lane, n, dx);
  });
}

}  // namespace

template <class T>
void MaxRows(const MaxWindows& g, const T* x, int64_t top, Row o, int64_t filled, T* y,
             int32_t* position) {
#ifdef SINGA_HAS_MAX_ROW_AVX512
  if (HasMaxRowAvx512()) return MaxRowAvx512(g, x, top, o, filled, y, position);
#endif
  MaxRowOfBlock<8>(g, x, top, o, filled, y, position);
}

template <class T>
void GradientRows(const MaxWindows& g, const T* dy, const int32_t* position, Row i, int64_t filled,
                  T* dx) {
#ifdef SINGA_HAS_MAX_ROW_AVX512
  // For blocks of 16 floats the generic loop is as fast: its number of lanes is a constant.
  if (HasMaxRowAvx512() && (filled > 16 || std::is_same_v<T, BFloat16>))
    return GradientRowAvx512(g, dy, position, i, filled, dx);
#endif
  if (VectorLanes() == 16) {
    GradientRowOfBlock<16>(g, dy, position, i, filled, dx);
  } else {
    GradientRowOfBlock<8>(g, dy, position, i, filled, dx);
  }
}

#define SINGA_INSTANTIATE(T)                                                               \
  template void MaxRows(const MaxWindows&, const T*, int64_t, Row, int64_t, T*, int32_t*); \
  template void GradientRows(const MaxWindows&, const T*, const int32_t*, Row, int64_t, T*)
SINGA_INSTANTIATE(float);
SINGA_INSTANTIATE(BFloat16);
#undef SINGA_INSTANTIATE

}  // namespace singa::cpu
