#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/operation/conv/tap_table.h"

namespace singa::cpu {

/// Resizes the columns of one row: each column of the result is a weighted sum of columns of the
/// argument. A column has `inner` neighbouring values. The argument is float32; T is float or
/// BFloat16.
class Columns {
 public:
  Columns(const TapTable& taps, int64_t inner);
  template <class T>
  void Run(const float* row, T* out) const;

 private:
  /// Neighbouring columns with equally many taps. Tap k of column i has its position and weight at
  /// first + k · size + i.
  struct Part {
    enum Kind {
      kAny,
      kTwice,  ///< two columns for each column of the argument, with the same two sets of weights
      kHalf,   ///< a column for each two of the argument, with the same weights
    } kind;
    int64_t begin, size;
    int taps;
    size_t first;
  };
  void Add(const TapTable& table, int64_t begin, int64_t end);
  bool Repeats(const Part& part, int64_t period, int64_t step) const;

  int64_t inner_;
  std::vector<Part> parts_;
  std::vector<int32_t> at_;
  std::vector<float> weight_;
};

/// out[j] = Σ weights[r] · rows[r][j] for n columns; zeros if there are no rows.
template <class T>
void BlendRows(const T* const* rows, const float* weights, size_t count, int64_t n, float* out);

}  // namespace singa::cpu
