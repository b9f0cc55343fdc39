#pragma once

// The loops of batchnorm_loops.h. A file that includes this one defines SINGA_TARGET, the
// instruction set of its loops. They are compiled in files of their own, each with the widths that
// its instruction set meets, because compiling all widths for all of them takes a minute.

#include <bit>
#include <type_traits>

#include "backend/cpu/norm/batchnorm_loops.h"
#include "core/device/inline.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"
#include "singa/core/half.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace singa::cpu {
namespace {

// A loop's callees must be inlined; on their own, they would be compiled for the baseline.

/// Calls body(width). Those of kWidths are constants, so that a column's sums and constants stay in
/// registers: narrow rows, and those of this instruction set's blocked layouts. Wider rows are
/// processed row by row, with their sums in the L1 cache: prefetchers would not follow a few
/// columns over many rows.
template <int64_t... kWidths, class Body>
SINGA_INLINE void WithWidth(int64_t width, const Body& body) {
  const bool is_constant =
      ((width == kWidths && (body(std::integral_constant<int64_t, kWidths>()), true)) || ...);
  if (!is_constant) body(width);
}

// Rows are processed in words of 32 bits: a float, or two bfloat16, of which the upper one is a
// float32 in place and the lower one after a shift. Unpacking them to memory order and back would
// take as long as everything else.

/// Maximum number of words that are processed together.
constexpr int64_t kMostWords = 16;

/// Columns of a row that are processed together: kWords words of kEach elements, starting at
/// `first` in memory. Their sums and constants start at `place`; those of the words' upper halves
/// are `apart` further on.
template <int64_t kEach, int64_t kWords>
struct Part {
  static constexpr int64_t kElements = kEach;
  int64_t first, place, apart;
};

/// Calls body(part) for the columns of a row of n elements.
template <class T, class Count, class Body>
SINGA_INLINE void ForParts(Count n, const Body& body) {
  constexpr int64_t kEach = sizeof(uint32_t) / sizeof(T);
  if constexpr (!std::is_same_v<Count, int64_t>) {
    constexpr int64_t kWords = Count::value / kEach;
    body(Part<kEach, kWords>{0, 0, kWords});
  } else {
    // All lengths are constants: a loop over the last few words would take longest to compile.
    const int64_t words = n / kEach;
    int64_t word = 0;
    for (; word + kMostWords <= words; word += kMostWords)
      body(Part<kEach, kMostWords>{word * kEach, word, words});
    for (; word + 4 <= words; word += 4) body(Part<kEach, 4>{word * kEach, word, words});
    for (; word < words; ++word) body(Part<kEach, 1>{word * kEach, word, words});
    if (words * kEach < n) body(Part<1, 1>{n - 1, n - 1, 0});
  }
}

/// A column of a part: the lower or upper half of a word.
template <bool kUpper>
struct Column {
  int64_t word;
};

/// Calls body(column, k, i) for all columns of a part. k is the index of the column's sums and
/// constants, i its index in PartOfRow.
template <int64_t kEach, int64_t kWords, class Body>
SINGA_INLINE void ForColumns(const Part<kEach, kWords>& part, const Body& body) {
#pragma omp simd
  for (int64_t w = 0; w < kWords; ++w) body(Column<false>{w}, part.place + w, w);
  if constexpr (kEach == 2) {
    const int64_t upper = part.place + part.apart;
#pragma omp simd
    for (int64_t w = 0; w < kWords; ++w) body(Column<true>{w}, upper + w, kWords + w);
  }
}

/// Two elements, aligned only as one.
using Word [[gnu::may_alias, gnu::aligned(2)]] = uint32_t;

/// Prefetch distance ahead of a row. With short rows and several tensors, hardware prefetchers come
/// too late; elsewhere the prefetch costs almost nothing.
constexpr int64_t kAheadBytes = 2048;

/// The elements of a part of a row as floats. Without kRead, they are not prefetched.
template <class T, class Part, bool kRead = true>
class Elements {
 public:
  SINGA_INLINE Elements(const T* row, const Part& part) : row_(row + part.first) {
    if constexpr (kRead) __builtin_prefetch(row_ + kAheadBytes / sizeof(T));
  }
  template <bool kUpper>
  SINGA_INLINE float operator[](Column<kUpper> column) const {
    if constexpr (Part::kElements == 2) {
      const uint32_t word = reinterpret_cast<const Word*>(row_)[column.word];
      return std::bit_cast<float>(kUpper ? word & 0xffff0000u : word << 16);
    } else {
      return static_cast<float>(row_[column.word]);
    }
  }

 private:
  const T* row_;
};

/// The values of a part's columns.
using PartOfRow = float[2 * kMostWords];

/// A value's bits, rounded as BFloat16 does, in the upper half of a word.
SINGA_INLINE uint32_t Rounded(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return value != value ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
}

/// A value after storing it as T and loading it again.
template <class T>
SINGA_INLINE float AsStored(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return std::bit_cast<float>(Rounded(value) & 0xffff0000u);
  }
}

/// Stores `values` as elements. Without kRound, they must be exact values of T.
template <bool kRound, int64_t kEach, int64_t kWords, class T>
SINGA_INLINE void Store(const PartOfRow& values, T* to) {
  if constexpr (std::is_same_v<T, float>) {
#pragma omp simd
    for (int64_t w = 0; w < kWords; ++w) to[w] = values[w];
  } else if constexpr (kEach == 1) {
    to[0] = T(values[0]);
  } else {
    const auto bits = [](float value) SINGA_INLINE_LAMBDA {
      return kRound ? Rounded(value) : std::bit_cast<uint32_t>(value);
    };
    Word* stored = reinterpret_cast<Word*>(to);  // `auto` would drop the alignment
#pragma omp simd
    for (int64_t w = 0; w < kWords; ++w)
      stored[w] = (bits(values[w]) >> 16) | (bits(values[kWords + w]) & 0xffff0000u);
  }
}

#ifdef __SSE2__
/// Writes 16 bytes with a non-temporal store.
SINGA_INLINE void Stream(const void* from, void* to) {
  _mm_stream_si128(static_cast<__m128i*>(to), _mm_loadu_si128(static_cast<const __m128i*>(from)));
}
#endif

/// Writes a part of `row`. With `stream`, full vectors are written past the caches: their lines
/// need not be read first, and the caches keep their contents. The flag is no constant of the
/// loops, whose versions would take twice as long to compile: it is asked once for each part.
template <bool kRound = true, int64_t kEach, int64_t kWords, class T>
SINGA_INLINE void Put(const PartOfRow& values, const Part<kEach, kWords>& part, T* row,
                      [[maybe_unused]] bool stream) {
  T* to = row + part.first;
#ifdef __SSE2__
  constexpr int64_t kCount = kWords * kEach, kStep = 16 / sizeof(T);
  if constexpr (kCount % kStep == 0) {
    if (stream) {
      T stored[kCount];
      Store<kRound, kEach, kWords>(values, stored);
      for (int64_t i = 0; i < kCount; i += kStep) Stream(stored + i, to + i);
      return;
    }
  }
#endif
  Store<kRound, kEach, kWords>(values, to);
}

/// Calls body(flag) with the bool as a compile-time constant.
template <class Body>
SINGA_INLINE void WithFlag(bool flag, const Body& body) {
  if (flag) {
    body(std::true_type());
  } else {
    body(std::false_type());
  }
}

using formula::FastActivation;

/// Calls body(function) with the activation as a FastActivation.
template <int kFirst = 0, class Body>
SINGA_INLINE void WithActivation(const Activation& activation, const Body& body) {
  constexpr auto kKind = static_cast<ActivationKind>(kFirst);
  if constexpr (kKind < ActivationKind::kCount) {
    if (activation.kind == kKind) return body(FastActivation<kKind>(activation));
    WithActivation<kFirst + 1>(activation, body);
  }
}

/// The gradient of ReLU, from its result.
struct ReluFromResult {
  static constexpr bool kReadsResult = true;
  SINGA_INLINE float Gradient(float dy, float y) const { return WhereRectified(y, dy); }
};

/// Calls body(function), whose Gradient takes dy and a value of y if that is not null, else bn(x).
template <class Body>
SINGA_INLINE void WithGradient(const Activation& activation, const void* y, const Body& body) {
  if (y && activation) return body(ReluFromResult());
  WithActivation(activation, body);
}

/// Sums (float) or constants (const float) of columns. If the width is a constant, this is a copy
/// on the stack that the compiler keeps in registers; else it refers to the originals.
template <class Float, class Count>
class Columns {
 public:
  SINGA_INLINE Columns(Float* values, Count) : values_(values) {}
  SINGA_INLINE Float& operator[](int64_t k) const { return values_[k]; }

 private:
  Float* values_;
};
template <class Float, int64_t kCount>
class Columns<Float, std::integral_constant<int64_t, kCount>> {
 public:
  using Count = std::integral_constant<int64_t, kCount>;

  SINGA_INLINE Columns(Float* values, Count) : values_(values) {
    for (int64_t k = 0; k < kCount; ++k) held_[k] = values[k];
  }
  SINGA_INLINE ~Columns() {
    if constexpr (!std::is_const_v<Float>)
      for (int64_t k = 0; k < kCount; ++k) values_[k] = held_[k];
  }
  SINGA_INLINE float& operator[](int64_t k) { return held_[k]; }

 private:
  Float* values_;
  float held_[kCount];
};

/// The constants of BatchNormAffine for a row.
template <class Count>
struct Affine {
  SINGA_INLINE Affine(const AffineRow& row, Count n)
      : mean(row.mean, n), factor(row.factor, n), bias(row.bias, n) {}
  SINGA_INLINE float operator()(int64_t k, float x) {
    return BatchNormValue(x, mean[k], factor[k], bias[k]);
  }
  Columns<const float, Count> mean, factor, bias;
};

/// The tensors that backward reads, for a part of a row.
template <class Function, class T, class Width, class Part>
struct Gradients {
  static constexpr bool kReadsResult = requires { Function::kReadsResult; };

  SINGA_INLINE Gradients(const Function& f, Affine<Width>& affine, const T* dy, const T* x,
                         const T* y, int64_t row, const Part& part)
      : f(f),
        affine(affine),
        dy(dy + row, part),
        x(x + row, part),
        y((kReadsResult ? y : x) + row, part) {}
  /// dy of a column times the slope of f. k is the index of the column's constants.
  template <class Column>
  SINGA_INLINE float Counted(Column c, int64_t k) const {
    if constexpr (kReadsResult) return f.Gradient(dy[c], y[c]);
    return f.Gradient(dy[c], affine(k, x[c]));
  }
  const Function& f;
  Affine<Width>& affine;
  Elements<T, Part> dy, x;
  Elements<T, Part, kReadsResult> y;
};

/// The same with a residual, where dy may be a sum of two tensors.
template <bool kTwo, class T, class Part>
struct GradientsOfSum {
  SINGA_INLINE GradientsOfSum(const T* dy, const T* dy2, const T* x, const T* y, int64_t row,
                              const Part& part)
      : dy(dy + row, part),
        dy2((kTwo ? dy2 : dy) + row, part),
        x(x + row, part),
        y(y + row, part) {}
  template <class Column>
  SINGA_INLINE float Counted(Column c, int64_t) const {
    return WhereRectified(y[c], kTwo ? AsStored<T>(dy[c] + dy2[c]) : dy[c]);
  }
  Elements<T, Part> dy;
  Elements<T, Part, kTwo> dy2;
  Elements<T, Part> x, y;
};

/// Adds g and g · (x − mean) of all rows, two at once. make(row, part) reads a part of the row at
/// an offset. store(g, part, row) may keep g.
template <class T, class Count, class Make, class StoreRow>
SINGA_INLINE void AddRows(Count n, int64_t rows, Columns<const float, Count>& mean, float* sum,
                          float* products, const Make& make, const StoreRow& store) {
  Columns<float, Count> s(sum, n), p(products, n);
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    ForParts<T>(n, [&](auto part) SINGA_INLINE_LAMBDA {
      const int64_t at = r * n, next = at + n;
      const auto row0 = make(at, part), row1 = make(next, part);
      PartOfRow a, b;
      ForColumns(part, [&](auto column, int64_t k, int64_t i) SINGA_INLINE_LAMBDA {
        a[i] = row0.Counted(column, k);
        b[i] = row1.Counted(column, k);
        s[k] += a[i] + b[i];
        p[k] += a[i] * (row0.x[column] - mean[k]) + b[i] * (row1.x[column] - mean[k]);
      });
      store(a, part, at);
      store(b, part, next);
    });
  }
  if (r == rows) return;
  ForParts<T>(n, [&](auto part) SINGA_INLINE_LAMBDA {
    const auto row0 = make(r * n, part);
    PartOfRow a;
    ForColumns(part, [&](auto column, int64_t k, int64_t i) SINGA_INLINE_LAMBDA {
      a[i] = row0.Counted(column, k);
      s[k] += a[i];
      p[k] += a[i] * (row0.x[column] - mean[k]);
    });
    store(a, part, r * n);
  });
}

template <class T, int64_t... kWidths>
SINGA_TARGET void AddDeviations(const T* x, int64_t rows, int64_t width, const float* shift,
                                float* sum, float* squares) {
  WithWidth<kWidths...>(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Columns<float, decltype(n)> s(sum, n), q(squares, n);
    Columns<const float, decltype(n)> origin(shift, n);
    int64_t r = 0;
    // Four rows at once, for shorter dependency chains of sums.
    for (; r + 4 <= rows; r += 4) {
      ForParts<T>(n, [&](auto part) SINGA_INLINE_LAMBDA {
        const T* row = x + r * n;
        const Elements<T, decltype(part)> row0(row, part), row1(row + n, part),
            row2(row + 2 * n, part), row3(row + 3 * n, part);
        ForColumns(part, [&](auto column, int64_t k, int64_t) SINGA_INLINE_LAMBDA {
          const float a = row0[column] - origin[k], b = row1[column] - origin[k];
          const float d = row2[column] - origin[k], e = row3[column] - origin[k];
          s[k] += (a + b) + (d + e);
          q[k] += (a * a + b * b) + (d * d + e * e);
        });
      });
    }
    for (; r < rows; ++r) {
      ForParts<T>(n, [&](auto part) SINGA_INLINE_LAMBDA {
        const Elements<T, decltype(part)> row(x + r * n, part);
        ForColumns(part, [&](auto column, int64_t k, int64_t) SINGA_INLINE_LAMBDA {
          const float a = row[column] - origin[k];
          s[k] += a;
          q[k] += a * a;
        });
      });
    }
  });
}

template <class T, int64_t... kWidths>
SINGA_TARGET void NormalizeRows(const T* x, const T* add, int64_t rows, int64_t width,
                                const AffineRow& row, const Activation& activation, T* y,
                                bool stream) {
  WithWidth<kWidths...>(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine<decltype(n)> affine(row, n);
    const auto normalize = [&](auto has_add, const auto& f) SINGA_INLINE_LAMBDA {
      for (int64_t at = 0; at < rows * n; at += n) {
        ForParts<T>(n, [&](auto part) SINGA_INLINE_LAMBDA {
          const Elements<T, decltype(part)> of_x(x + at, part);
          const Elements<T, decltype(part), has_add> added((has_add ? add : x) + at, part);
          PartOfRow v;
          ForColumns(part, [&](auto column, int64_t k, int64_t i) SINGA_INLINE_LAMBDA {
            float value = affine(k, of_x[column]);
            if constexpr (has_add) value += added[column];
            v[i] = f(value);
          });
          Put(v, part, y + at, stream);
        });
      }
    };
    if (!add) {
      WithActivation(activation,
                     [&](const auto& f) SINGA_INLINE_LAMBDA { normalize(std::false_type(), f); });
    } else if (activation) {
      normalize(std::true_type(), FastActivation<ActivationKind::kRelu>(activation));
    } else {
      normalize(std::true_type(), FastActivation<ActivationKind::kNone>(activation));
    }
  });
}

template <class T, int64_t... kWidths>
SINGA_TARGET void AddGradients(const Activation& activation, const T* dy, const T* x, const T* y,
                               int64_t rows, int64_t width, const AffineRow& row, float* sum,
                               float* products, T* slopes) {
  WithWidth<kWidths...>(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine<decltype(n)> affine(row, n);
    WithGradient(activation, y, [&](const auto& f) SINGA_INLINE_LAMBDA {
      AddRows<T>(
          n, rows, affine.mean, sum, products,
          [&](int64_t at, const auto& part) SINGA_INLINE_LAMBDA {
            using Function = std::decay_t<decltype(f)>;
            using Part = std::decay_t<decltype(part)>;
            return Gradients<Function, T, decltype(n), Part>(f, affine, dy, x, y, at, part);
          },
          [&](const PartOfRow& g, const auto& part, int64_t at) SINGA_INLINE_LAMBDA {
            if (slopes) Put(g, part, slopes + at, false);
          });
    });
  });
}

// Computes the same sums as AddGradients, bit for bit, so that they do not depend on which
// gradients are requested.
template <class T, int64_t... kWidths>
SINGA_TARGET void AddGradientsOfSum(const T* dy, const T* dy2, const T* x, const T* y, int64_t rows,
                                    int64_t width, const float* mean, float* sum, float* products,
                                    T* dadd, bool stream) {
  WithWidth<kWidths...>(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Columns<const float, decltype(n)> origin(mean, n);
    WithFlag(dy2 != nullptr, [&](auto two) SINGA_INLINE_LAMBDA {
      AddRows<T>(
          n, rows, origin, sum, products,
          [&](int64_t at, const auto& part) SINGA_INLINE_LAMBDA {
            using Part = std::decay_t<decltype(part)>;
            return GradientsOfSum<two, T, Part>(dy, dy2, x, y, at, part);
          },
          [&](const PartOfRow& g, const auto& part, int64_t at)
              SINGA_INLINE_LAMBDA { Put<false>(g, part, dadd + at, stream); });
    });
  });
}

template <class T, int64_t... kWidths>
SINGA_TARGET void GradientRows(const Activation& activation, const T* dy, const T* x, const T* y,
                               int64_t rows, int64_t width, const AffineRow& row,
                               const float* constant, const float* slope, T* dx, bool stream) {
  WithWidth<kWidths...>(width, [&](auto n) SINGA_INLINE_LAMBDA {
    Affine<decltype(n)> affine(row, n);
    Columns<const float, decltype(n)> level(constant, n), steep(slope, n);
    WithGradient(activation, y, [&](const auto& f) SINGA_INLINE_LAMBDA {
      using Function = std::decay_t<decltype(f)>;
      for (int64_t at = 0; at < rows * n; at += n) {
        ForParts<T>(n, [&](auto part) SINGA_INLINE_LAMBDA {
          const Gradients<Function, T, decltype(n), decltype(part)> of_row(f, affine, dy, x, y, at,
                                                                           part);
          PartOfRow v;
          ForColumns(part, [&](auto column, int64_t k, int64_t i) SINGA_INLINE_LAMBDA {
            const float g = of_row.Counted(column, k);
            const float deviation = of_row.x[column] - affine.mean[k];
            v[i] = affine.factor[k] * g - level[k] - steep[k] * deviation;
          });
          Put(v, part, dx + at, stream);
        });
      }
    });
  });
}

/// All of them.
template <class T, int64_t... kWidths>
constexpr BatchNormLoops<T> kLoops = {AddDeviations<T, kWidths...>, NormalizeRows<T, kWidths...>,
                                      AddGradients<T, kWidths...>, AddGradientsOfSum<T, kWidths...>,
                                      GradientRows<T, kWidths...>};

}  // namespace
}  // namespace singa::cpu
