#include "backend/onednn/batchnorm_loops.h"

#include <cmath>
#include <type_traits>

#include "core/parallel.h"
#include "model/operation/batchnorm_spec.h"

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

/// Calls body(first, count) for the columns of a row, 16 at a time.
template <class Count, class Body>
SINGA_INLINE void ForBlocks(Count n, const Body& body) {
  constexpr std::integral_constant<int64_t, kBlock> kAll;
  if constexpr (!std::is_same_v<Count, int64_t>) {
    body(int64_t{0}, n);
  } else {
    int64_t c = 0;
    for (; c + kBlock <= n; c += kBlock) body(c, kAll);
    if (c < n) body(c, n - c);
  }
}

/// Writes the first n of `values`. Past the caches, if `kStream`, where lines are written in full:
/// they need not be read first, and what is in the caches stays there.
template <bool kStream, class Count>
SINGA_INLINE void Put(const float (&values)[kBlock], Count n, float* to) {
#ifdef __SSE2__
  if constexpr (kStream && !std::is_same_v<Count, int64_t>) {
    for (int64_t i = 0; i < n; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(values + i));
    return;
  }
#endif
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = values[i];
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

/// Sums (float) or constants (const float) of columns: a copy on the stack where the width is a
/// constant, which the compiler then keeps in registers; else themselves.
template <class T, class Count>
class Columns {
 public:
  SINGA_INLINE Columns(T* values, Count) : values_(values) {}
  SINGA_INLINE T& operator[](int64_t c) const { return values_[c]; }

 private:
  T* values_;
};
template <class T, int64_t kCount>
class Columns<T, std::integral_constant<int64_t, kCount>> {
 public:
  SINGA_INLINE Columns(T* values, std::integral_constant<int64_t, kCount>) : values_(values) {
    for (int64_t c = 0; c < kCount; ++c) held_[c] = values[c];
  }
  SINGA_INLINE ~Columns() {
    if constexpr (!std::is_const_v<T>)
      for (int64_t c = 0; c < kCount; ++c) values_[c] = held_[c];
  }
  SINGA_INLINE float& operator[](int64_t c) { return held_[c]; }

 private:
  T* values_;
  float held_[kCount];
};

/// The constants of BatchNormAffine of a row.
template <class Count>
struct Affine {
  SINGA_INLINE Affine(const AffineRow& row, Count n)
      : mean(row.mean, n), factor(row.factor, n), bias(row.bias, n) {}
  SINGA_INLINE float operator()(int64_t c, float x) {
    return BatchNormValue(x, mean[c], factor[c], bias[c]);
  }
  Columns<const float, Count> mean, factor, bias;
};

/// Element i of dy, of column c, where it counts, else 0.
template <ReluMask kMask, class Count>
SINGA_INLINE float Counted(Affine<Count>& affine, int64_t c, const float* dy, const float* x,
                           const float* y, int64_t i) {
  if constexpr (kMask == ReluMask::kFromX) return WhereRectified(affine(c, x[i]), dy[i]);
  if constexpr (kMask == ReluMask::kFromY) return WhereRectified(y[i], dy[i]);
  return dy[i];
}

}  // namespace

SINGA_MULTI_ISA
void AddDeviations(const float* x, int64_t rows, int64_t width, const float* shift, float* sum,
                   float* squares) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Columns<float, decltype(n)> s(sum, n), q(squares, n);
    Columns<const float, decltype(n)> origin(shift, n);
    int64_t r = 0;
    // Four rows at once: fewer steps from sum to sum.
    for (; r + 4 <= rows; r += 4) {
      const float* row = x + r * n;
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const float a = row[c] - origin[c], b = row[n + c] - origin[c];
        const float d = row[2 * n + c] - origin[c], e = row[3 * n + c] - origin[c];
        s[c] += (a + b) + (d + e);
        q[c] += (a * a + b * b) + (d * d + e * e);
      }
    }
    for (; r < rows; ++r) {
      const float* row = x + r * n;
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const float a = row[c] - origin[c];
        s[c] += a;
        q[c] += a * a;
      }
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

SINGA_MULTI_ISA
void NormalizeRows(const float* x, const float* add, int64_t rows, int64_t width,
                   const AffineRow& row, bool relu, float* y, bool stream) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine affine(row, n);
    WithFlag(add != nullptr, [&](auto has_add) SINGA_INLINE_LAMBDA {
      WithFlag(relu, [&](auto has_relu) SINGA_INLINE_LAMBDA {
        WithFlag(stream, [&](auto streams) SINGA_INLINE_LAMBDA {
          for (int64_t at = 0; at < rows * n; at += n) {
            ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
              const int64_t i = at + first;
              float v[kBlock];
#pragma omp simd
              for (int64_t c = 0; c < count; ++c) {
                float value = affine(first + c, x[i + c]);
                if constexpr (has_add) value += add[i + c];
                v[c] = has_relu ? Rectified(value) : value;
              }
              Put<streams>(v, count, y + i);
            });
          }
        });
      });
    });
  });
}

SINGA_MULTI_ISA
void AddGradients(ReluMask mask, const float* dy, const float* x, const float* y, int64_t rows,
                  int64_t width, const AffineRow& row, float* sum, float* products) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine affine(row, n);
    Columns<float, decltype(n)> s(sum, n), p(products, n);
    WithMask(mask, [&](auto m) SINGA_INLINE_LAMBDA {
      constexpr ReluMask kMask = decltype(m)::value;
      int64_t r = 0;
      for (; r + 2 <= rows; r += 2) {
        const int64_t at = r * n;
#pragma omp simd
        for (int64_t c = 0; c < n; ++c) {
          const int64_t i = at + c, j = i + n;
          const float a = Counted<kMask>(affine, c, dy, x, y, i);
          const float b = Counted<kMask>(affine, c, dy, x, y, j);
          s[c] += a + b;
          p[c] += a * (x[i] - affine.mean[c]) + b * (x[j] - affine.mean[c]);
        }
      }
      if (r == rows) return;
      const int64_t at = r * n;
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const float a = Counted<kMask>(affine, c, dy, x, y, at + c);
        s[c] += a;
        p[c] += a * (x[at + c] - affine.mean[c]);
      }
    });
  });
}

// The sums of AddGradients, to the bit: which gradients are asked for does not change them.
SINGA_MULTI_ISA
void AddGradientsOfSum(const float* dy, const float* x, const float* y, int64_t rows, int64_t width,
                       const float* mean, float* sum, float* products, float* dadd, bool stream) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Columns<const float, decltype(n)> origin(mean, n);
    Columns<float, decltype(n)> s(sum, n), p(products, n);
    WithFlag(stream, [&](auto streams) SINGA_INLINE_LAMBDA {
      int64_t r = 0;
      for (; r + 2 <= rows; r += 2) {
        ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
          const int64_t i = r * n + first, j = i + n;
          float a[kBlock], b[kBlock];
#pragma omp simd
          for (int64_t c = 0; c < count; ++c) {
            const int64_t k = first + c;
            a[c] = WhereRectified(y[i + c], dy[i + c]);
            b[c] = WhereRectified(y[j + c], dy[j + c]);
            s[k] += a[c] + b[c];
            p[k] += a[c] * (x[i + c] - origin[k]) + b[c] * (x[j + c] - origin[k]);
          }
          Put<streams>(a, count, dadd + i);
          Put<streams>(b, count, dadd + j);
        });
      }
      if (r == rows) return;
      ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
        const int64_t i = r * n + first;
        float a[kBlock];
#pragma omp simd
        for (int64_t c = 0; c < count; ++c) {
          const int64_t k = first + c;
          a[c] = WhereRectified(y[i + c], dy[i + c]);
          s[k] += a[c];
          p[k] += a[c] * (x[i + c] - origin[k]);
        }
        Put<streams>(a, count, dadd + i);
      });
    });
  });
}

SINGA_MULTI_ISA
void GradientRows(ReluMask mask, const float* dy, const float* x, const float* y, int64_t rows,
                  int64_t width, const AffineRow& row, const float* constant, const float* slope,
                  float* dx, bool stream) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine affine(row, n);
    Columns<const float, decltype(n)> level(constant, n), steep(slope, n);
    WithMask(mask, [&](auto m) SINGA_INLINE_LAMBDA {
      WithFlag(stream, [&](auto streams) SINGA_INLINE_LAMBDA {
        for (int64_t at = 0; at < rows * n; at += n) {
          ForBlocks(n, [&](int64_t first, auto count) SINGA_INLINE_LAMBDA {
            const int64_t i = at + first;
            float v[kBlock];
#pragma omp simd
            for (int64_t c = 0; c < count; ++c) {
              const int64_t k = first + c;
              const float g = Counted<decltype(m)::value>(affine, k, dy, x, y, i + c);
              v[c] = affine.factor[k] * g - level[k] - steep[k] * (x[i + c] - affine.mean[k]);
            }
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

}  // namespace singa::onednn
