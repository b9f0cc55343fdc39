// The loops of loops.h. A file that includes this one defines SINGA_TARGET, the instruction set for
// which all functions are compiled, and `Vectors`, its operations on vectors (vectors_avx2.h).

#define SINGA_TARGET_INLINE SINGA_TARGET inline __attribute__((always_inline))

namespace singa::cpu::depthwise {
namespace {

using Vector = Vectors::Type;
constexpr int kLanes = Vectors::kLanes;

template <int kOrders>
SINGA_TARGET_INLINE void StoreOrders(const Vector& x, float* to, int64_t order_step) {
  Vectors::Store(to, x);
  if constexpr (kOrders > 1) Vectors::Store(to + order_step, Vectors::Flipped<1>(x));
  if constexpr (kOrders > 2) {
    Vectors::Store(to + 2 * order_step, Vectors::Flipped<2>(x));
    Vectors::Store(to + 3 * order_step, Vectors::Flipped<3>(x));
  }
}

template <int kOrders, class T>
SINGA_TARGET void CopyInOrders(const CopyCall<T>& call, int64_t order_step) {
  const bool partial = call.panel.last < kLanes;
  const int64_t whole = call.panel.vectors - partial;
  const Vectors::Mask mask = Vectors::First(call.panel.last);
  const T* from = call.from;
  float* to = call.to;
  for (int64_t column = 0; column < call.columns; ++column) {
    for (int64_t v = 0; v < whole; ++v)
      StoreOrders<kOrders>(Vectors::Load(from + v * kLanes), to + v * call.vector_step, order_step);
    if (partial)
      StoreOrders<kOrders>(Vectors::Load(from + whole * kLanes, mask),
                           to + whole * call.vector_step, order_step);
    from += call.column_step;
    to += kLanes;
  }
}

template <class T>
void Copy(const CopyCall<T>& call, int64_t orders, int64_t order_step) {
  const auto copy = orders == 1   ? CopyInOrders<1, T>
                    : orders == 2 ? CopyInOrders<2, T>
                                  : CopyInOrders<4, T>;
  copy(call, order_step);
}

template <ActivationKind kKind>
SINGA_TARGET_INLINE Vector Activated(Vector v, Vector low, Vector high) {
  if constexpr (kKind == ActivationKind::kRelu) {
    return Vectors::Rectify(v);
  } else if constexpr (kKind == ActivationKind::kClip) {
    return Vectors::Clip(v, low, high);
  } else if constexpr (kKind == ActivationKind::kHardSwish) {
    const Vector gate =
        Vectors::Clip(Vectors::Add(v, Vectors::All(3)), Vectors::All(0), Vectors::All(6));
    return Vectors::Multiply(v, Vectors::Multiply(gate, Vectors::All(1.0f / 6)));
  } else {
    static_assert(kKind == ActivationKind::kNone);
    return v;
  }
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

/// Stores results `first` + [0, kCount) of vector v, as far as they belong to the row.
template <int kCount, class T>
SINGA_TARGET_INLINE void StoreResults(const RowCall<T>& call, int64_t v, int64_t first,
                                      const Vector (&results)[kCount]) {
  const bool partial = v + 1 == call.panel.vectors && call.panel.last < kLanes;
  const Vectors::Mask mask = Vectors::First(partial ? call.panel.last : kLanes);
  const int64_t begin = -first, end = call.columns - first;
  const int64_t at = first * call.column_step + v * kLanes;
#pragma GCC unroll 8
  for (int t = 0; t < kCount; ++t) {
    if (t < begin || t >= end) continue;
    const int64_t place = at + t * call.column_step;
    Vector result = results[t];
    if (call.add)
      result = Vectors::Add(result, partial ? Vectors::Load(call.add + place, mask)
                                            : Vectors::Load(call.add + place));
    if (call.relu) result = Vectors::Rectify(result);
    if (partial) {
      Vectors::Store(call.to + place, result, mask);
    } else if (call.stream) {
      Vectors::Stream(call.to + place, result);
    } else {
      Vectors::Store(call.to + place, result);
    }
  }
}

/// Computes kCount results from `first` on, of all vectors.
template <bool kForward, int kKernel, int kStride, int kCount, class T>
SINGA_TARGET_INLINE void ComputeTile(const RowCall<T>& call, int64_t first, Ahead& ahead) {
  constexpr int kBefore = kForward ? 0 : (kKernel - 1) / kStride;
  constexpr int kColumns =
      kForward ? (kCount - 1) * kStride + kKernel : kBefore + (kCount - 1) / kStride + 1;
  const int64_t column = kForward ? first * kStride : (first + call.skipped) / kStride;
  for (int64_t v = 0; v < call.panel.vectors; ++v) {
    ahead.Fetch();
    Vector results[kCount];
#pragma GCC unroll 8
    for (int t = 0; t < kCount; ++t) results[t] = Vectors::Load(call.bias + v * kLanes);
    for (int64_t row = 0; row < call.rows; ++row) {
      const float* source = call.sources[row] + v * call.source_step + column * kLanes;
      const float* weights = call.weights[row] + v * call.weight_step;
      Vector taps[kKernel];
#pragma GCC unroll 8
      for (int tap = 0; tap < kKernel; ++tap) taps[tap] = Vectors::Load(weights + tap * kLanes);
#pragma GCC unroll 24
      for (int c = 0; c < kColumns; ++c) {
        const Vector x = Vectors::Held(Vectors::Load(source + c * kLanes));
#pragma GCC unroll 8
        for (int t = 0; t < kCount; ++t) {
          const int tap = kForward ? c - t * kStride : t - (c - kBefore) * kStride;
          if (tap >= 0 && tap < kKernel)
            results[t] = Vectors::MultiplyAdd(x, taps[tap], results[t]);
        }
      }
    }
    StoreResults(call, v, first, results);
  }
}

template <bool kForward, int kKernel, int kStride, class T>
SINGA_TARGET void ComputeRow(const RowCall<T>& call) {
  int64_t first = -call.skipped;
  const int64_t tiles = (call.columns - first + kTile - 1) / kTile;
  Ahead ahead(call.next, tiles * call.panel.vectors);
  for (; call.columns - first > kLastTile; first += kTile)
    ComputeTile<kForward, kKernel, kStride, kTile>(call, first, ahead);
  if (first < call.columns) ComputeTile<kForward, kKernel, kStride, kLastTile>(call, first, ahead);
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

template <class T, int kKernel, int kStride>
constexpr Loops<T> kLoops = {Copy<T>,
                             CopyNormed,
                             ComputeRow<true, kKernel, kStride, T>,
                             ComputeRow<false, kKernel, kStride, T>,
                             SumProducts<kKernel, kStride, T>,
                             Vectors::Fence};

template <class T>
Loops<T> Find(int64_t kernel, int64_t stride) {
  switch (kernel) {
    case 3:
      return stride == 1 ? kLoops<T, 3, 1> : kLoops<T, 3, 2>;
    case 5:
      return stride == 1 ? kLoops<T, 5, 1> : kLoops<T, 5, 2>;
    default:
      return stride == 1 ? kLoops<T, 7, 1> : kLoops<T, 7, 2>;
  }
}

}  // namespace
}  // namespace singa::cpu::depthwise
