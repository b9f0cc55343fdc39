#pragma once

// What all implementations of attention agree on: which keys a query uses, and which words of the
// random sequence decide about its weights.

#include <cstdint>

#include "model/formula/philox.h"

namespace singa::formula {

/// The number of keys that query `query` may use where causal: those up to first_query + query.
constexpr int64_t CausalKeys(int64_t first_query, int64_t query, int64_t keys) {
  const int64_t end = first_query + query + 1;
  return end < 0 ? 0 : end < keys ? end : keys;
}

// Dropout. The words of row r, which is (b · heads + h) · queries + i, begin at a multiple of four
// words, so that a block of Philox belongs to one row. The weight of key j takes word j.

constexpr uint64_t AttentionRowWords(int64_t keys) {
  return (static_cast<uint64_t>(keys) + 3) / 4 * 4;
}
/// How many words are drawn; three of them are for alignment.
constexpr uint64_t AttentionDropoutWords(uint64_t rows, int64_t keys) {
  return rows * AttentionRowWords(keys) + 3;
}

/// The part of the random sequence that a call of forward has drawn, which backward draws again.
struct AttentionDrawn {
  uint64_t seed = 0, offset = 0;
};

/// Dropout of weights.
struct AttentionDropout {
  uint64_t seed;
  uint64_t first;  ///< word of row 0
  uint64_t row_words;
  uint32_t threshold;  ///< words below it drop a weight
  double factor;       ///< of the others

  constexpr AttentionDropout(const AttentionDrawn& drawn, int64_t keys, double ratio)
      : seed(drawn.seed),
        first(Aligned(drawn.offset)),
        row_words(AttentionRowWords(keys)),
        threshold(static_cast<uint32_t>(ratio * 0x1p32)),  // ratio < 1
        factor(1 / (1 - ratio)) {}

  constexpr void MoveTo(const AttentionDrawn& drawn) {
    seed = drawn.seed;
    first = Aligned(drawn.offset);
  }
  /// The word of the first key of a row.
  constexpr uint64_t Row(int64_t row) const {
    return first + static_cast<uint64_t>(row) * row_words;
  }

 private:
  static constexpr uint64_t Aligned(uint64_t offset) { return (offset + 3) / 4 * 4; }
};

}  // namespace singa::formula
