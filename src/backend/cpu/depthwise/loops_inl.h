// The loops of loops.h. A file that includes this one defines SINGA_TARGET, the instruction set for
// which all functions are compiled, and `Vectors`, its operations on vectors (vectors_avx2.h).

#include <algorithm>

#include "backend/cpu/activate_vectors.h"

namespace singa::cpu::depthwise {
namespace {

using Vector = Vectors::Type;
constexpr int kLanes = Vectors::kLanes;

template <class T>
SINGA_TARGET void Copy(const CopyCall<T>& call) {
  const bool partial = call.panel.last < kLanes;
  const int64_t whole = call.panel.vectors - partial;
  const Vectors::Mask mask = Vectors::First(call.panel.last);
  const T* from = call.from;
  float* to = call.to;
  for (int64_t column = 0; column < call.columns; ++column) {
    for (int64_t v = 0; v < whole; ++v)
      Vectors::Store(to + v * call.vector_step, Vectors::Load(from + v * kLanes));
    if (partial)
      Vectors::Store(to + whole * call.vector_step, Vectors::Load(from + whole * kLanes, mask));
    from += call.column_step;
    to += kLanes;
  }
}

constexpr int kMostTerms = 8;  // channels of a group

/// For each term, the lane that each lane reads.
struct Orders {
  alignas(64) int32_t lanes[kMostTerms][kLanes];
};
constexpr Orders MakeOrders(int terms) {
  Orders orders = {};
  for (int term = 0; term < terms; ++term)
    for (int lane = 0; lane < kLanes; ++lane)
      orders.lanes[term][lane] = lane / terms * terms + term;
  return orders;
}
constexpr Orders kPairs = MakeOrders(2), kFours = MakeOrders(4), kEights = MakeOrders(8);

inline const Orders& OrdersOf(int64_t terms) {
  return terms == 2 ? kPairs : terms == 4 ? kFours : kEights;
}

template <ActivationKind kKind, bool kNorm>
SINGA_TARGET_INLINE void CopyActivated(const CopyCall<float>& call, const NormCall& norm) {
  const bool partial = call.panel.last < kLanes;
  const int64_t whole = call.panel.vectors - partial;
  const Vectors::Mask mask = Vectors::First(call.panel.last);
  const Vector low = Vectors::All(static_cast<float>(norm.activation.low)),
               high = Vectors::All(static_cast<float>(norm.activation.high));
  const float* from = call.from;
  float* to = call.to;
  for (int64_t column = 0; column < call.columns; ++column) {
    for (int64_t v = 0; v < call.panel.vectors; ++v) {
      const int64_t at = v * kLanes;
      Vector x = v < whole ? Vectors::Load(from + at) : Vectors::Load(from + at, mask);
      if constexpr (kNorm) {
        const Vector deviation = Vectors::Subtract(x, Vectors::Load(norm.mean + at));
        // Held, or the compiler would make one rounding of the product and the sum.
        const Vector product =
            Vectors::Held(Vectors::Multiply(deviation, Vectors::Load(norm.factor + at)));
        x = Vectors::Add(product, Vectors::Load(norm.bias + at));
      }
      Vectors::Store(to + v * call.vector_step, Activated<kKind>(x, low, high));
    }
    from += call.column_step;
    to += kLanes;
  }
}

template <bool kNorm>
SINGA_TARGET void CopyBehind(const CopyCall<float>& call, const NormCall& norm) {
  switch (norm.activation.kind) {
    case ActivationKind::kRelu:
      return CopyActivated<ActivationKind::kRelu, kNorm>(call, norm);
    case ActivationKind::kClip:
      return CopyActivated<ActivationKind::kClip, kNorm>(call, norm);
    case ActivationKind::kHardSwish:
      return CopyActivated<ActivationKind::kHardSwish, kNorm>(call, norm);
    case ActivationKind::kNone:
      return CopyActivated<ActivationKind::kNone, kNorm>(call, norm);
    default:  // refused: it is slow
      __builtin_unreachable();
  }
}

SINGA_TARGET void CopyNormed(const CopyCall<float>& call, const NormCall& norm) {
  if (norm.mean)
    CopyBehind<true>(call, norm);
  else
    CopyBehind<false>(call, norm);
}

/// Finishes and stores results `first` + [0, kCount) of vector v, as far as they belong to the row.
template <bool kForward, int kCount, class T>
SINGA_TARGET_INLINE void StoreResults(const RowCall<T>& call, int64_t v, int64_t first,
                                      Vector (&results)[kCount]) {
  const bool partial = v + 1 == call.panel.vectors && call.panel.last < kLanes;
  const Vectors::Mask mask = Vectors::First(partial ? call.panel.last : kLanes);
  const int64_t begin = -first, end = call.columns - first;
  const int64_t at = first * call.column_step + v * kLanes;
  if constexpr (kForward) {
    if (call.add) {
#pragma GCC unroll 8
      for (int t = 0; t < kCount; ++t) {
        if (t >= end) continue;
        const T* add = call.add + at + t * call.column_step;
        results[t] =
            Vectors::Add(results[t], partial ? Vectors::Load(add, mask) : Vectors::Load(add));
      }
    }
    Activate(call.after, results);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kCount; ++t) {
    if (t < begin || t >= end) continue;
    const int64_t place = at + t * call.column_step;
    if (partial) {
      Vectors::Store(call.to + place, results[t], mask);
    } else if (call.stream) {
      Vectors::Stream(call.to + place, results[t]);
    } else {
      Vectors::Store(call.to + place, results[t]);
    }
  }
}

/// Adds the products of a row of taps and the columns that kCount results read. kPermuted: in this
/// order of the lanes.
template <bool kForward, int kKernel, int kStride, bool kPermuted, int kCount>
SINGA_TARGET_INLINE void AddTaps(const float* source, const float* weights, const int32_t* order,
                                 Vector (&results)[kCount]) {
  constexpr int kBefore = kForward ? 0 : (kKernel - 1) / kStride;
  constexpr int kColumns =
      kForward ? (kCount - 1) * kStride + kKernel : kBefore + (kCount - 1) / kStride + 1;
  Vector taps[kKernel];
#pragma GCC unroll 8
  for (int tap = 0; tap < kKernel; ++tap) taps[tap] = Vectors::Load(weights + tap * kLanes);
  [[maybe_unused]] Vectors::Order lanes;
  if constexpr (kPermuted) lanes = Vectors::LoadOrder(order);
#pragma GCC unroll 40
  for (int c = 0; c < kColumns; ++c) {
    Vector x;
    if constexpr (kPermuted)
      x = Vectors::Load(source + c * kLanes, lanes);
    else
      x = Vectors::Held(Vectors::Load(source + c * kLanes));
#pragma GCC unroll 16
    for (int t = 0; t < kCount; ++t) {
      const int tap = kForward ? c - t * kStride : t - (c - kBefore) * kStride;
      if (tap >= 0 && tap < kKernel) results[t] = Vectors::MultiplyAdd(x, taps[tap], results[t]);
    }
  }
}

/// Computes kCount results from `first` on, of all vectors.
template <bool kForward, int kKernel, int kStride, bool kGroups, int kCount, class T>
SINGA_TARGET_INLINE void ComputeTile(const RowCall<T>& call, int64_t first, Ahead& ahead) {
  const int64_t column = kForward ? first * kStride : (first + call.skipped) / kStride;
  const Orders& orders = OrdersOf(call.terms);
  for (int64_t v = 0; v < call.panel.vectors; ++v) {
    ahead.Fetch();
    Vector results[kCount];
#pragma GCC unroll 16
    for (int t = 0; t < kCount; ++t) results[t] = Vectors::Load(call.bias + v * kLanes);
    for (int64_t row = 0; row < call.rows; ++row) {
      const float* source = call.sources[row] + v * call.source_step + column * kLanes;
      const float* weights = call.weights[row] + v * call.weight_step;
      for (int64_t term = 0; term < (kGroups ? call.terms : 1); ++term)
        AddTaps<kForward, kKernel, kStride, kGroups>(source, weights + term * kKernel * kLanes,
                                                     orders.lanes[term], results);
    }
    StoreResults<kForward>(call, v, first, results);
  }
}

template <bool kForward, int kKernel, int kStride, bool kGroups, int kTile, class T>
SINGA_TARGET_INLINE void ComputeTiles(const RowCall<T>& call) {
  constexpr Tiles kAll = {kTile};
  int64_t first = -call.skipped;
  const int64_t tiles = (call.columns - first + kTile - 1) / kTile;
  Ahead ahead(call.next, tiles * call.panel.vectors);
  for (; call.columns - first > kAll.last(); first += kTile)
    ComputeTile<kForward, kKernel, kStride, kGroups, kTile>(call, first, ahead);
  if (first < call.columns)
    ComputeTile<kForward, kKernel, kStride, kGroups, kAll.last()>(call, first, ahead);
}

template <bool kForward, int kKernel, int kStride, bool kGroups, class T>
SINGA_TARGET void ComputeRow(const RowCall<T>& call) {
  if constexpr (kGroups && kLanes == 16) {
    if (call.tiles.whole == kWideTiles.whole)
      return ComputeTiles<kForward, kKernel, kStride, kGroups, kWideTiles.whole>(call);
  }
  ComputeTiles<kForward, kKernel, kStride, kGroups, kTiles.whole>(call);
}

/// How far dy is fetched ahead.
constexpr int kColumnsAhead = 16;

/// Adds the products of kCount columns of dy and kRows rows of x.
template <int kKernel, int kStride, int kRows, int kCount, class T>
SINGA_TARGET_INLINE void AddProducts(const float* const (&sources)[kRows], const T* dy,
                                     int64_t column_step, bool partial, Vectors::Mask mask,
                                     Vector (&sums)[kRows][kKernel]) {
  constexpr int kColumns = (kCount - 1) * kStride + kKernel;
  Vector gradients[kCount];
#pragma GCC unroll 4
  for (int t = 0; t < kCount; ++t) {
    __builtin_prefetch(dy + (t + kColumnsAhead) * column_step);
    gradients[t] =
        partial ? Vectors::Load(dy + t * column_step, mask) : Vectors::Load(dy + t * column_step);
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const Vector x = Vectors::Held(Vectors::Load(sources[row] + c * kLanes));
#pragma GCC unroll 4
      for (int t = 0; t < kCount; ++t) {
        const int tap = c - t * kStride;
        if (tap >= 0 && tap < kKernel)
          sums[row][tap] = Vectors::MultiplyAdd(x, gradients[t], sums[row][tap]);
      }
    }
  }
}

/// Columns of dy whose products are added together.
constexpr int kColumnsOfSum = 4;

/// kRows rows of taps from `row` on, of vector v.
template <int kKernel, int kStride, int kRows, class T>
SINGA_TARGET_INLINE void SumRows(const GradientCall<T>& call, int64_t v, int64_t row,
                                 Ahead& ahead) {
  constexpr int kCount = kColumnsOfSum;
  const bool partial = v + 1 == call.panel.vectors && call.panel.last < kLanes;
  const Vectors::Mask mask = Vectors::First(partial ? call.panel.last : kLanes);
  float* stored = call.sums + v * call.sum_step + row * kKernel * kLanes;
  const float* sources[kRows];
  Vector sums[kRows][kKernel];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    sources[r] = call.sources[row + r] + v * call.source_step;
#pragma GCC unroll 8
    for (int tap = 0; tap < kKernel; ++tap)
      sums[r][tap] = Vectors::Load(stored + (r * kKernel + tap) * kLanes);
  }
  const T* dy = call.dy + v * kLanes;
  int64_t column = 0;
  for (; column + kCount <= call.columns; column += kCount) {
    ahead.Fetch();
    AddProducts<kKernel, kStride, kRows, kCount>(sources, dy, call.column_step, partial, mask,
                                                 sums);
    dy += kCount * call.column_step;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sources[r] += kCount * kStride * kLanes;
  }
  for (; column < call.columns; ++column) {
    AddProducts<kKernel, kStride, kRows, 1>(sources, dy, call.column_step, partial, mask, sums);
    dy += call.column_step;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sources[r] += kStride * kLanes;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int tap = 0; tap < kKernel; ++tap)
      Vectors::Store(stored + (r * kKernel + tap) * kLanes, sums[r][tap]);
  }
}

template <int kKernel, int kStride, class T>
SINGA_TARGET void SumProducts(const GradientCall<T>& call) {
  // As many sums as hide the latency of an addition, and as fit in the registers.
  constexpr int kRows = kKernel == 3 ? 3 : kKernel == 5 || kLanes == 16 ? 2 : 1;
  const int64_t parts = call.columns / kColumnsOfSum * call.panel.vectors;
  Ahead ahead(call.next, std::max<int64_t>(parts, 1));
  for (int64_t v = 0; v < call.panel.vectors; ++v) {
    int64_t row = 0;
    for (; row + kRows <= call.rows; row += kRows)
      SumRows<kKernel, kStride, kRows>(call, v, row, ahead);
    for (; row < call.rows; ++row) SumRows<kKernel, kStride, 1>(call, v, row, ahead);
  }
}

/// A row of dy, of a vector.
template <class T>
struct GradientRow {
  const T* dy;
  int64_t columns, column_step;
  bool partial;  ///< has the lanes of the mask only
  Vectors::Mask mask;
};

/// Adds the products of columns t · kStride + [0, kStride) of x, which begin at `source`. `held`
/// has the columns before t of dy that they reach, newest first, and gets column t. kInside: dy has
/// them all.
template <int kKernel, int kStride, bool kInside, int kTerms, int kHeld, class T>
SINGA_TARGET_INLINE void AddColumns(const GradientRow<T>& row, int64_t t, const float* source,
                                    const Orders& orders, int64_t first_term, Vector (&held)[kHeld],
                                    Vector (&sums)[kTerms][kKernel]) {
#pragma GCC unroll 8
  for (int d = kHeld - 1; d > 0; --d) held[d] = held[d - 1];
  if (kInside || t < row.columns) {
    const T* dy = row.dy + t * row.column_step;
    held[0] = row.partial ? Vectors::Load(dy, row.mask) : Vectors::Load(dy);
  }
#pragma GCC unroll 2
  for (int c = 0; c < kStride; ++c) {
    // Zeros in the place of what dy lacks would make NaN of what is infinite in x.
    const auto reads = [&](int d) SINGA_INLINE_LAMBDA {
      return c + d * kStride < kKernel && (kInside || (t - d >= 0 && t - d < row.columns));
    };
    bool any = kInside;
#pragma GCC unroll 8
    for (int d = 0; d < kHeld; ++d) any |= reads(d);
    if (!any) continue;
#pragma GCC unroll 8
    for (int term = 0; term < kTerms; ++term) {
      const Vector x =
          Vectors::Load(source + c * kLanes, Vectors::LoadOrder(orders.lanes[first_term + term]));
#pragma GCC unroll 8
      for (int d = 0; d < kHeld; ++d)
        if (reads(d))
          sums[term][c + d * kStride] =
              Vectors::MultiplyAdd(x, held[d], sums[term][c + d * kStride]);
    }
  }
}

/// Adds to kTerms terms of a row of taps what all rows of dy give, of vector v.
template <int kKernel, int kStride, int kTerms, class T>
SINGA_TARGET_INLINE void SumTerms(const GroupGradientCall<T>& call, int64_t v, int64_t tap,
                                  int64_t term, Ahead& ahead) {
  constexpr int kHeld = (kKernel - 1) / kStride + 1;
  const bool partial = v + 1 == call.panel.vectors && call.panel.last < kLanes;
  GradientRow<T> row = {call.dy + v * kLanes, call.columns, call.column_step, partial,
                        Vectors::First(partial ? call.panel.last : kLanes)};
  const Orders& orders = OrdersOf(call.terms);
  float* stored = call.sums + v * call.sum_step + (tap * call.terms + term) * kKernel * kLanes;
  Vector sums[kTerms][kKernel];
#pragma GCC unroll 8
  for (int i = 0; i < kTerms; ++i) {
#pragma GCC unroll 8
    for (int k = 0; k < kKernel; ++k)
      sums[i][k] = Vectors::Load(stored + (i * kKernel + k) * kLanes);
  }
  for (int64_t r = 0; r < call.rows; ++r, row.dy += call.row_step) {
    ahead.Fetch();
    const float* source = call.sources[r * call.taps + tap];
    if (!source) continue;
    source += v * call.source_step;
    Vector held[kHeld] = {};
    int64_t t = 0;
    for (; t < kHeld - 1; ++t, source += kStride * kLanes)
      AddColumns<kKernel, kStride, false>(row, t, source, orders, term, held, sums);
    for (; t < call.columns; ++t, source += kStride * kLanes)
      AddColumns<kKernel, kStride, true>(row, t, source, orders, term, held, sums);
    for (; t < call.columns + kHeld - 1; ++t, source += kStride * kLanes)
      AddColumns<kKernel, kStride, false>(row, t, source, orders, term, held, sums);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTerms; ++i) {
#pragma GCC unroll 8
    for (int k = 0; k < kKernel; ++k)
      Vectors::Store(stored + (i * kKernel + k) * kLanes, sums[i][k]);
  }
}

template <int kKernel, int kStride, int kTerms, class T>
SINGA_TARGET void SumGroups(const GroupGradientCall<T>& call) {
  Ahead ahead(call.next, call.panel.vectors * call.taps * (call.terms / kTerms) * call.rows);
  for (int64_t v = 0; v < call.panel.vectors; ++v)
    for (int64_t tap = 0; tap < call.taps; ++tap)
      for (int64_t term = 0; term < call.terms; term += kTerms)
        SumTerms<kKernel, kStride, kTerms>(call, v, tap, term, ahead);
}

template <int kKernel, int kStride, class T>
void SumGroupProducts(const GroupGradientCall<T>& call) {
  // As many sums as hide the latency of an addition, and as fit in the registers.
  constexpr bool kFew = kLanes == 8;
  constexpr int kMost = kKernel == 7 ? (kFew ? 1 : 2) : (kFew ? 2 : 4);
  if constexpr (kMost == 4) {
    if (call.terms >= 4) return SumGroups<kKernel, kStride, 4>(call);
  }
  SumGroups<kKernel, kStride, std::min(kMost, 2)>(call);
}

template <class T, int kKernel, int kStride>
Loops<T> LoopsOf(bool groups) {
  if (groups)
    return {Copy<T>,
            CopyNormed,
            ComputeRow<true, kKernel, kStride, true, T>,
            ComputeRow<false, kKernel, kStride, true, T>,
            nullptr,
            SumGroupProducts<kKernel, kStride, T>,
            Vectors::Fence};
  return {Copy<T>,
          CopyNormed,
          ComputeRow<true, kKernel, kStride, false, T>,
          ComputeRow<false, kKernel, kStride, false, T>,
          SumProducts<kKernel, kStride, T>,
          nullptr,
          Vectors::Fence};
}

template <class T>
Loops<T> Find(int64_t kernel, int64_t stride, bool groups) {
  switch (kernel) {
    case 3:
      return stride == 1 ? LoopsOf<T, 3, 1>(groups) : LoopsOf<T, 3, 2>(groups);
    case 5:
      return stride == 1 ? LoopsOf<T, 5, 1>(groups) : LoopsOf<T, 5, 2>(groups);
    default:
      return stride == 1 ? LoopsOf<T, 7, 1>(groups) : LoopsOf<T, 7, 2>(groups);
  }
}

}  // namespace
}  // namespace singa::cpu::depthwise
