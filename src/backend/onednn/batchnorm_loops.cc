#include "backend/onednn/batchnorm_loops.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/parallel.h"
#include "model/operation/batchnorm_spec.h"
#include "singa/core/half.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace singa::onednn {
namespace {

// Whatever a loop calls has to become part of it: by itself it would be compiled for the baseline.
#define SINGA_INLINE inline __attribute__((always_inline))
#define SINGA_INLINE_LAMBDA __attribute__((always_inline))

/// Columns that are worked on at a time.
constexpr int64_t kBlock = 16;

/// Calls body(width), with the width of a blocked layout as a constant: what belongs to a column
/// then stays in registers. Wider rows are walked as they lie, their sums in the first-level cache:
/// 16 columns at a time would be what no prefetcher expects.
template <class Body>
SINGA_INLINE void WithWidth(int64_t width, const Body& body) {
  if (width == 16) {
    body(std::integral_constant<int64_t, 16>());
  } else if (width == 8) {
    body(std::integral_constant<int64_t, 8>());
  } else {
    body(width);
  }
}

/// Columns of a wider row.
struct PartOfRow : std::integral_constant<int64_t, kBlock> {};

/// Calls body(first, count) for the columns of a row, 16 at a time.
template <class Count, class Body>
SINGA_INLINE void ForBlocks(Count n, const Body& body) {
  constexpr PartOfRow kAll;
  if constexpr (!std::is_same_v<Count, int64_t>) {
    body(int64_t{0}, n);
  } else {
    int64_t c = 0;
    for (; c + kBlock <= n; c += kBlock) body(c, kAll);
    if (c < n) body(c, n - c);
  }
}

/// An element as it is computed with.
SINGA_INLINE float Value(float element) { return element; }
SINGA_INLINE float Value(BFloat16 element) { return static_cast<float>(element); }
/// And back. (GCC 12 vectorises no assignment of a class in a loop.)
SINGA_INLINE void Store(float value, float& element) { element = value; }
SINGA_INLINE void Store(float value, BFloat16& element) { element.bits = BFloat16(value).bits; }

/// A value as it comes back where it is stored in between.
template <class T>
SINGA_INLINE float AsStored(float value) {
  return static_cast<float>(T(value));
}

// The rows of blocked bfloat16 are computed as their even columns and then their odd ones: of words
// of 32 bits, the upper halves are float32 already, and the lower ones after a shift. In the order
// of memory, unpacking and packing would take as long as all else.
template <class T, class Count>
constexpr bool kEvenThenOdd = false;
template <int64_t kCount>
constexpr bool kEvenThenOdd<BFloat16, std::integral_constant<int64_t, kCount>> = true;

/// Calls body(c) for all columns of a row.
template <class T, class Count, class Body>
SINGA_INLINE void ForColumns(Count n, const Body& body) {
  if constexpr (kEvenThenOdd<T, Count>) {
    // In halves, as they are made: a wider vector would wait until both are written.
    constexpr int64_t kHalf = Count::value / 2;
    for (int64_t first = 0; first < n; first += kHalf) {
#pragma omp simd
      for (int64_t c = 0; c < kHalf; ++c) body(first + c);
    }
  } else {
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) body(c);
  }
}

/// Half a row.
template <int64_t kHalf>
struct Vectors {
  using Words __attribute__((vector_size(kHalf * sizeof(uint32_t)))) = uint32_t;
  using Floats __attribute__((vector_size(kHalf * sizeof(float)))) = float;
};

/// The bits of half a row of values, rounded as BFloat16 does, in the upper halves of words.
template <int64_t kHalf>
SINGA_INLINE void Round(const float* values, typename Vectors<kHalf>::Words& rounded) {
  using Words = typename Vectors<kHalf>::Words;
  typename Vectors<kHalf>::Floats floats;
  std::memcpy(&floats, values, sizeof(floats));
  const auto words = reinterpret_cast<Words>(floats);
  const auto nan = reinterpret_cast<Words>(floats != floats);
  rounded = (words + ((0x7fffu + ((words >> 16) & 1u)) & ~nan)) | (nan & 0x400000u);
}

/// The elements of a row as they are computed with.
template <class T, class Count, bool kSplit = kEvenThenOdd<T, Count>>
class Elements {
 public:
  SINGA_INLINE Elements(const T* row, Count) : row_(row) {}
  SINGA_INLINE float operator[](int64_t c) const { return Value(row_[c]); }

 private:
  const T* row_;
};
template <class T, class Count>
class Elements<T, Count, true> {
 public:
  SINGA_INLINE Elements(const T* row, Count) {
    typename Vectors<kHalf>::Words words;
    std::memcpy(&words, row, sizeof(words));
    const auto even = words << 16, odd = words & 0xffff0000u;
    std::memcpy(held_, &even, sizeof(even));
    std::memcpy(held_ + kHalf, &odd, sizeof(odd));
  }
  SINGA_INLINE float operator[](int64_t c) const { return held_[c]; }

 private:
  static constexpr int64_t kHalf = Count::value / 2;
  float held_[2 * kHalf];
};

#ifdef __SSE2__
/// Writes 16 bytes past the caches.
SINGA_INLINE void Stream(const void* from, void* to) {
  _mm_stream_si128(static_cast<__m128i*>(to), _mm_loadu_si128(static_cast<const __m128i*>(from)));
}
#endif

/// `values` as elements, n of them.
template <class T, class Count>
SINGA_INLINE void Store(const float* values, Count n, T* to) {
  if constexpr (kEvenThenOdd<T, Count>) {
    constexpr int64_t kHalf = Count::value / 2;
    typename Vectors<kHalf>::Words even, odd;
    Round<kHalf>(values, even);
    Round<kHalf>(values + kHalf, odd);
    const auto words = (even >> 16) | (odd & 0xffff0000u);
    std::memcpy(&to->bits, &words, sizeof(words));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) Store(values[i], to[i]);
  }
}

/// Writes the first n of `values`. Past the caches, if `kStream`, where lines are written in full:
/// they need not be read first, and what is in the caches stays there.
template <bool kStream, class T, class Count>
SINGA_INLINE void Put(const float (&values)[kBlock], Count n, T* to) {
#ifdef __SSE2__
  if constexpr (kStream && !std::is_same_v<Count, int64_t>) {
    T stored[kBlock];
    Store(values, n, stored);
    constexpr int64_t kStep = 16 / sizeof(T);
    for (int64_t i = 0; i < n; i += kStep) Stream(stored + i, to + i);
    return;
  }
#endif
  Store(values, n, to);
}

/// Calls body(flag) with a bool as a constant.
template <class Body>
SINGA_INLINE void WithFlag(bool flag, const Body& body) {
  if (flag) {
    body(std::true_type());
  } else {
    body(std::false_type());
  }
}

template <class Body>
SINGA_INLINE void WithMask(ReluMask mask, const Body& body) {
  if (mask == ReluMask::kNone) {
    body(std::integral_constant<ReluMask, ReluMask::kNone>());
  } else if (mask == ReluMask::kFromX) {
    body(std::integral_constant<ReluMask, ReluMask::kFromX>());
  } else {
    body(std::integral_constant<ReluMask, ReluMask::kFromY>());
  }
}

/// Sums (float) or constants (const float) of columns of elements of type T: a copy on the stack
/// where the width is a constant, which the compiler then keeps in registers; else themselves.
template <class T, class Float, class Count>
class Columns {
 public:
  SINGA_INLINE Columns(Float* values, Count) : values_(values) {}
  SINGA_INLINE Float& operator[](int64_t c) const { return values_[c]; }

 private:
  Float* values_;
};
template <class T, class Float, int64_t kCount>
class Columns<T, Float, std::integral_constant<int64_t, kCount>> {
 public:
  using Count = std::integral_constant<int64_t, kCount>;

  SINGA_INLINE Columns(Float* values, Count) : values_(values) {
    for (int64_t c = 0; c < kCount; ++c) held_[c] = values[kSplit ? c % kHalf * 2 + c / kHalf : c];
  }
  SINGA_INLINE ~Columns() {
    if constexpr (!std::is_const_v<Float>)
      for (int64_t k = 0; k < kCount; ++k) values_[k] = held_[kSplit ? k % 2 * kHalf + k / 2 : k];
  }
  SINGA_INLINE float& operator[](int64_t c) { return held_[c]; }

 private:
  static constexpr bool kSplit = kEvenThenOdd<T, Count>;
  static constexpr int64_t kHalf = kCount / 2;

  Float* values_;
  float held_[kCount];
};

/// The constants of BatchNormAffine of a row.
template <class T, class Count>
struct Affine {
  SINGA_INLINE Affine(const AffineRow& row, Count n)
      : mean(row.mean, n), factor(row.factor, n), bias(row.bias, n) {}
  SINGA_INLINE float operator()(int64_t c, float x) {
    return BatchNormValue(x, mean[c], factor[c], bias[c]);
  }
  Columns<T, const float, Count> mean, factor, bias;
};

/// What backward reads of a row, or of a block of its columns, that begins at `at`.
template <ReluMask kMask, class T, class Count>
struct Gradients {
  SINGA_INLINE Gradients(const T* dy, const T* x, const T* y, int64_t at, Count n)
      : dy(dy + at, n), x(x + at, n), y((kMask == ReluMask::kFromY ? y : x) + at, n) {}
  /// dy of column c, whose constants are those of column k, where it counts, else 0.
  template <class Width>
  SINGA_INLINE float Counted(Affine<T, Width>& affine, int64_t c, int64_t k) const {
    if constexpr (kMask == ReluMask::kFromX) return WhereRectified(affine(k, x[c]), dy[c]);
    if constexpr (kMask == ReluMask::kFromY) return WhereRectified(y[c], dy[c]);
    return dy[c];
  }
  Elements<T, Count> dy, x, y;
};

/// What it reads where something was added, and dy may be a sum.
template <bool kTwo, class T, class Count>
struct GradientsOfSum {
  SINGA_INLINE GradientsOfSum(const T* dy, const T* dy2, const T* x, const T* y, int64_t at,
                              Count n)
      : dy(dy + at, n), dy2((kTwo ? dy2 : dy) + at, n), x(x + at, n), y(y + at, n) {}
  SINGA_INLINE float Counted(int64_t c) const {
    return WhereRectified(y[c], kTwo ? AsStored<T>(dy[c] + dy2[c]) : dy[c]);
  }
  Elements<T, Count> dy, dy2, x, y;
};

}  // namespace

template <class T>
SINGA_MULTI_ISA void AddDeviations(const T* x, int64_t rows, int64_t width, const float* shift,
                                   float* sum, float* squares) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Columns<T, float, decltype(n)> s(sum, n), q(squares, n);
    Columns<T, const float, decltype(n)> origin(shift, n);
    int64_t r = 0;
    // Four rows at once: fewer steps from sum to sum.
    for (; r + 4 <= rows; r += 4) {
      const T* row = x + r * n;
      const Elements<T, decltype(n)> row0(row, n), row1(row + n, n), row2(row + 2 * n, n),
          row3(row + 3 * n, n);
      ForColumns<T>(n, [&](int64_t c) SINGA_INLINE_LAMBDA {
        const float a = row0[c] - origin[c], b = row1[c] - origin[c];
        const float d = row2[c] - origin[c], e = row3[c] - origin[c];
        s[c] += (a + b) + (d + e);
        q[c] += (a * a + b * b) + (d * d + e * e);
      });
    }
    for (; r < rows; ++r) {
      const Elements<T, decltype(n)> row(x + r * n, n);
      ForColumns<T>(n, [&](int64_t c) SINGA_INLINE_LAMBDA {
        const float a = row[c] - origin[c];
        s[c] += a;
        q[c] += a * a;
      });
    }
  });
}

SINGA_MULTI_ISA
void AddToTotals(int64_t rows, int64_t width, const float* shift, const float* origin,
                 const float* sum, const float* squares, double* total) {
  const auto count = static_cast<double>(rows);
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) {
      const double s = sum[c], step = static_cast<double>(shift[c]) - origin[c];
      total[c] += s + count * step;
      total[n + c] += squares[c] + step * (2 * s + count * step);
    }
  });
}

SINGA_MULTI_ISA
void AddToTotals(int64_t width, const float* sum, const float* products, double* total) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) {
      total[c] += sum[c];
      total[n + c] += products[c];
    }
  });
}

SINGA_MULTI_ISA
void FindStatistics(const double* total, const float* origin, int64_t rows, int64_t width,
                    int64_t channels, float* mean, float* var) {
  const auto n = static_cast<double>(rows);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    const double step = total[c] / n, squares = total[width + c] / n - step * step;
    mean[c] = static_cast<float>(origin[c] + step);
    var[c] = static_cast<float>(squares < 0 ? 0 : squares);  // NaN stays
  }
}

SINGA_MULTI_ISA
void FindFactors(const float* var, const float* scale, double epsilon, int64_t channels,
                 float* factor) {
  WithFlag(scale != nullptr, [&](auto has_scale) SINGA_INLINE_LAMBDA {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c)
      factor[c] = BatchNormFactor(has_scale ? scale[c] : 1.0f, var[c], epsilon);
  });
}

SINGA_MULTI_ISA
void FindSlopes(const double* total, const float* var, const float* factor, double epsilon,
                int64_t rows, int64_t width, int64_t channels, float* dscale, float* dbias,
                float* constant, float* slope) {
  const auto n = static_cast<double>(rows);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    const double inv_std = 1 / std::sqrt(var[c] + epsilon);
    const double product = total[width + c] * inv_std;
    dbias[c] = static_cast<float>(total[c]);
    dscale[c] = static_cast<float>(product);
    constant[c] = static_cast<float>(factor[c] * total[c] / n);
    slope[c] = static_cast<float>(factor[c] * inv_std * product / n);
  }
}

template <class T>
SINGA_MULTI_ISA void NormalizeRows(const T* x, const T* add, int64_t rows, int64_t width,
                                   const AffineRow& row, bool relu, T* y, bool stream) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine<T, decltype(n)> affine(row, n);
    WithFlag(add != nullptr, [&](auto has_add) SINGA_INLINE_LAMBDA {
      WithFlag(relu, [&](auto has_relu) SINGA_INLINE_LAMBDA {
        WithFlag(stream, [&](auto streams) SINGA_INLINE_LAMBDA {
          for (int64_t at = 0; at < rows * n; at += n) {
            ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
              const int64_t i = at + first;
              const Elements<T, decltype(count)> block(x + i, count);
              const Elements<T, decltype(count)> added((has_add ? add : x) + i, count);
              float v[kBlock];
              ForColumns<T>(count, [&](int64_t c) SINGA_INLINE_LAMBDA {
                float value = affine(first + c, block[c]);
                if constexpr (has_add) value += added[c];
                v[c] = has_relu ? Rectified(value) : value;
              });
              Put<streams>(v, count, y + i);
            });
          }
        });
      });
    });
  });
}

template <class T>
SINGA_MULTI_ISA void AddGradients(ReluMask mask, const T* dy, const T* x, const T* y, int64_t rows,
                                  int64_t width, const AffineRow& row, float* sum,
                                  float* products) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine<T, decltype(n)> affine(row, n);
    Columns<T, float, decltype(n)> s(sum, n), p(products, n);
    WithMask(mask, [&](auto m) SINGA_INLINE_LAMBDA {
      using Row = Gradients<decltype(m)::value, T, decltype(n)>;
      int64_t r = 0;
      for (; r + 2 <= rows; r += 2) {
        const Row row0(dy, x, y, r * n, n), row1(dy, x, y, r * n + n, n);
        ForColumns<T>(n, [&](int64_t c) SINGA_INLINE_LAMBDA {
          const float a = row0.Counted(affine, c, c), b = row1.Counted(affine, c, c);
          s[c] += a + b;
          p[c] += a * (row0.x[c] - affine.mean[c]) + b * (row1.x[c] - affine.mean[c]);
        });
      }
      if (r == rows) return;
      const Row row0(dy, x, y, r * n, n);
      ForColumns<T>(n, [&](int64_t c) SINGA_INLINE_LAMBDA {
        const float a = row0.Counted(affine, c, c);
        s[c] += a;
        p[c] += a * (row0.x[c] - affine.mean[c]);
      });
    });
  });
}

// The sums of AddGradients, to the bit: which gradients are asked for does not change them.
template <class T>
SINGA_MULTI_ISA void AddGradientsOfSum(const T* dy, const T* dy2, const T* x, const T* y,
                                       int64_t rows, int64_t width, const float* mean, float* sum,
                                       float* products, T* dadd, bool stream) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Columns<T, const float, decltype(n)> origin(mean, n);
    Columns<T, float, decltype(n)> s(sum, n), p(products, n);
    WithFlag(dy2 != nullptr, [&](auto two) SINGA_INLINE_LAMBDA {
      WithFlag(stream, [&](auto streams) SINGA_INLINE_LAMBDA {
        int64_t r = 0;
        for (; r + 2 <= rows; r += 2) {
          ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
            const int64_t i = r * n + first, j = i + n;
            using Row = GradientsOfSum<two, T, decltype(count)>;
            const Row row0(dy, dy2, x, y, i, count), row1(dy, dy2, x, y, j, count);
            float a[kBlock], b[kBlock];
            ForColumns<T>(count, [&](int64_t c) SINGA_INLINE_LAMBDA {
              const int64_t k = first + c;
              a[c] = row0.Counted(c);
              b[c] = row1.Counted(c);
              s[k] += a[c] + b[c];
              p[k] += a[c] * (row0.x[c] - origin[k]) + b[c] * (row1.x[c] - origin[k]);
            });
            Put<streams>(a, count, dadd + i);
            Put<streams>(b, count, dadd + j);
          });
        }
        if (r == rows) return;
        ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
          const int64_t i = r * n + first;
          const GradientsOfSum<two, T, decltype(count)> row0(dy, dy2, x, y, i, count);
          float a[kBlock];
          ForColumns<T>(count, [&](int64_t c) SINGA_INLINE_LAMBDA {
            const int64_t k = first + c;
            a[c] = row0.Counted(c);
            s[k] += a[c];
            p[k] += a[c] * (row0.x[c] - origin[k]);
          });
          Put<streams>(a, count, dadd + i);
        });
      });
    });
  });
}

template <class T>
SINGA_MULTI_ISA void GradientRows(ReluMask mask, const T* dy, const T* x, const T* y, int64_t rows,
                                  int64_t width, const AffineRow& row, const float* constant,
                                  const float* slope, T* dx, bool stream) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine<T, decltype(n)> affine(row, n);
    Columns<T, const float, decltype(n)> level(constant, n), steep(slope, n);
    WithMask(mask, [&](auto m) SINGA_INLINE_LAMBDA {
      WithFlag(stream, [&](auto streams) SINGA_INLINE_LAMBDA {
        for (int64_t at = 0; at < rows * n; at += n) {
          ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
            const int64_t i = at + first;
            const Gradients<decltype(m)::value, T, decltype(count)> block(dy, x, y, i, count);
            float v[kBlock];
            ForColumns<T>(count, [&](int64_t c) SINGA_INLINE_LAMBDA {
              const int64_t k = first + c;
              const float g = block.Counted(affine, c, k);
              const float deviation = block.x[c] - affine.mean[k];
              v[c] = affine.factor[k] * g - level[k] - steep[k] * deviation;
            });
            Put<streams>(v, count, dx + i);
          });
        }
      });
    });
  });
}

void StreamFence() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

#define SINGA_INSTANTIATE(T)                                                                    \
  template void AddDeviations(const T*, int64_t, int64_t, const float*, float*, float*);        \
  template void NormalizeRows(const T*, const T*, int64_t, int64_t, const AffineRow&, bool, T*, \
                              bool);                                                            \
  template void AddGradients(ReluMask, const T*, const T*, const T*, int64_t, int64_t,          \
                             const AffineRow&, float*, float*);                                 \
  template void AddGradientsOfSum(const T*, const T*, const T*, const T*, int64_t, int64_t,     \
                                  const float*, float*, float*, T*, bool);                      \
  template void GradientRows(ReluMask, const T*, const T*, const T*, int64_t, int64_t,          \
                             const AffineRow&, const float*, const float*, T*, bool)
SINGA_INSTANTIATE(float);
SINGA_INSTANTIATE(BFloat16);
#undef SINGA_INSTANTIATE

}  // namespace singa::onednn
