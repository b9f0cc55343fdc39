#include "backend/cpu/linalg/outer_sums.h"

#include <algorithm>

#include "core/device/inline.h"
#include "core/tensor/round_up.h"

namespace singa::cpu {
namespace {

/// Terms of a chunk: the panels of three blocks fit in the first-level cache.
constexpr int64_t kChunkTerms = 256;
/// Terms of a slice, at least, so that its sums are not the larger part of the work.
constexpr int64_t kSliceTerms = 2048;
/// Slices and parts of columns, so that many threads have work.
constexpr int64_t kMostSlices = 16;

constexpr int64_t kWordBytes = sizeof(uint32_t);

SINGA_MULTI_ISA void AddTo(const float* from, int64_t n, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

OuterSums::OuterSums(const PairLoops& loops, const Sizes& sizes, int threads, int64_t cache)
    : loops_(loops),
      sizes_(sizes),
      threads_(std::max(threads, 1)),
      left_blocks_(sizes.left / kSide),
      right_blocks_(sizes.right / kSide),
      taps_(sizes.down.taps * sizes.across.taps) {
  const int64_t rows = sizes.images * sizes.down.outputs, length = sizes.across.outputs;
  if (length > kChunkTerms) {
    together_ = 1;
    piece_ = RoundUp(CeilDivide(length, CeilDivide(length, kChunkTerms)), 2);
    chunks_ = rows * CeilDivide(length, piece_);
  } else {
    together_ = std::clamp<int64_t>(kChunkTerms / RoundUp(length, 2), 1, rows);
    piece_ = length;
    chunks_ = CeilDivide(rows, together_);
  }
  pairs_ = together_ * CeilDivide(piece_, 2);
  const int64_t most = std::max<int64_t>(rows * length / kSliceTerms, 1);
  // Sums and panels of a task share the cache. Further parts give threads work; they change no sum.
  const auto fits = [&] {
    return PartOfLeft() * PartOfRight() * taps_ * kBlock * kWordBytes <= cache * 3 / 8 &&
           packed_size() * kWordBytes <= cache * 3 / 8;
  };
  const auto divide = [&](const auto& enough) {
    while (!enough() && PartOfLeft() + PartOfRight() > 3)
      ++(PartOfLeft() > PartOfRight() ? left_parts_ : right_parts_);
  };
  divide(fits);
  slices_ = std::clamp<int64_t>(kMostSlices / (left_parts_ * right_parts_), 1,
                                std::min({most, chunks_, kMostSlices}));
  divide([&] { return threads_ == 1 || left_parts_ * right_parts_ * slices_ >= 2 * threads_; });
}

size_t OuterSums::workspace_bytes() const {
  return static_cast<size_t>((slices_ * sums_size() + threads_ * packed_size()) * kWordBytes);
}

OuterSums::Chunk OuterSums::ChunkAt(int64_t index) const {
  const int64_t length = sizes_.across.outputs;
  if (piece_ == length) {
    const int64_t rows = sizes_.images * sizes_.down.outputs, row = index * together_;
    return {row, std::min(together_, rows - row), 0, piece_};
  }
  const int64_t pieces = CeilDivide(length, piece_), first = index % pieces * piece_;
  return {index / pieces, 1, first, std::min(piece_, length - first)};
}

/// Fetches what the next chunk packs while this one is multiplied. Processors follow many short
/// runs of memory badly by themselves.
class OuterSums::Ahead {
 public:
  Ahead(const OuterSums& sums, const Chunk& chunk, const OuterFactor& left, const Range& rows,
        const OuterFactor& right, const Range& columns)
      : sums_(sums),
        chunk_(chunk),
        left_(left),
        right_(right),
        rows_(rows),
        columns_(columns),
        runs_((rows.size() + columns.size()) * chunk.count),
        left_terms_(chunk.terms == sums.sizes_.across.outputs
                        ? sums.sizes_.across.inputs * sums.sizes_.down.stride
                        : chunk.terms * sums.sizes_.across.stride) {
    const int64_t terms = rows.size() * left_terms_ + columns.size() * chunk.terms;
    step_ =
        CeilDivide(terms * chunk.count, rows.size() * CeilDivide(columns.size(), 2) * sums.taps_);
  }

  /// Called before each product.
  // Inlined: GCC drops calls of functions that do nothing but fetch.
  SINGA_INLINE void Step() {
    for (int64_t left = step_; left > 0 && run_ < runs_;) {
      const int64_t count = std::min(left, RunTerms() - term_);
      FetchRun(count);
      left -= count;
      term_ += count;
      if (term_ < RunTerms()) return;
      term_ = 0;
      ++run_;
    }
  }

 private:
  bool is_left() const { return run_ / chunk_.count < rows_.size(); }
  int64_t RunTerms() const { return is_left() ? left_terms_ : chunk_.terms; }
  SINGA_INLINE void FetchRun(int64_t count) const {
    constexpr int64_t kLine = 64 / sizeof(BFloat16);
    const Sizes& sizes = sums_.sizes_;
    const int64_t block = run_ / chunk_.count, row = chunk_.row + run_ % chunk_.count;
    const OuterFactor& factor = is_left() ? left_ : right_;
    const int64_t column = is_left() ? rows_.begin + block : columns_.begin + block - rows_.size();
    // Two blocks in a line are fetched once.
    if (factor.block_step < kLine && column % 2 == 1) return;
    const int64_t stride = is_left() ? sizes.down.stride : 1;
    const int64_t first = chunk_.first * (is_left() ? sizes.across.stride : 1);
    const BFloat16* from = sums_.At(factor, row / sizes.down.outputs,
                                    row % sizes.down.outputs * stride, column, first + term_);
    const int64_t terms = std::max<int64_t>(kLine / factor.term_step, 1);
    for (int64_t t = 0; t < count; t += terms)
      __builtin_prefetch(from + t * factor.term_step, 0, 2);
  }

  const OuterSums& sums_;
  Chunk chunk_;
  const OuterFactor &left_, &right_;
  Range rows_, columns_;
  int64_t runs_, left_terms_, step_;
  int64_t run_ = 0, term_ = 0;  // the next one
};

void OuterSums::PackRight(const OuterFactor& factor, const Chunk& chunk, int64_t block,
                          uint32_t* to) const {
  const int64_t rows = sizes_.down.outputs;
  for (int64_t row = chunk.row; row < chunk.row + chunk.count; ++row) {
    loops_.join(At(factor, row / rows, row % rows, block, chunk.first), factor.term_step,
                chunk.terms, to);
    to += chunk.pairs_of_row() * kSide;
  }
}

void OuterSums::PackLeft(const OuterFactor& factor, const Chunk& chunk, int64_t block, int64_t tap,
                         uint32_t* to) const {
  const TapAxis &down = sizes_.down, &across = sizes_.across;
  const int64_t tap_down = tap / across.taps, tap_across = tap % across.taps;
  // The terms whose input is there, counted from the chunk's first one.
  const int64_t before = -across.At(chunk.first, tap_across), last = across.inputs - 1 + before;
  const int64_t begin =
      std::clamp<int64_t>(CeilDivide(std::max<int64_t>(before, 0), across.stride), 0, chunk.terms);
  const int64_t end =
      std::clamp<int64_t>(last < 0 ? 0 : last / across.stride + 1, begin, chunk.terms);
  const int64_t step = across.stride * factor.term_step, words = chunk.pairs_of_row() * kSide;
  for (int64_t row = chunk.row; row < chunk.row + chunk.count; ++row, to += words) {
    const int64_t input = down.At(row % down.outputs, tap_down);
    if (input < 0 || input >= down.inputs || begin == end) {
      std::fill_n(to, words, 0u);
      continue;
    }
    const BFloat16* from =
        At(factor, row / down.outputs, input, block, across.At(chunk.first + begin, tap_across));
    uint32_t* at = to + begin / 2 * kSide;
    std::fill(to, at, 0u);
    int64_t count = end - begin;
    if (begin % 2 == 1) {  // the partner of the first one is zero
      for (int64_t c = 0; c < kSide; ++c) at[c] = uint32_t{from[c].bits} << 16;
      at += kSide;
      from += step;
      --count;
    }
    loops_.join(from, step, count, at);
    std::fill(at + CeilDivide(count, 2) * kSide, to + words, 0u);
  }
}

void OuterSums::Multiply(const OuterFactor& left, const OuterFactor& right, float* sums,
                         uint32_t* packed) const {
  const int64_t parts = left_parts_ * right_parts_;
  ParallelItems(parts * slices_, threads_, [&](Items& items) {
    uint32_t* lefts = packed + items.thread() * packed_size();
    uint32_t* rights = lefts + (left_is_last() ? 1 : PartOfLeft()) * panel_size();
    for (const int64_t task : items) {
      const int64_t slice = task / parts, i = task % parts / right_parts_, j = task % right_parts_;
      const Range rows = PartOf(left_blocks_, 1, i, left_parts_);
      const Range columns = PartOf(right_blocks_, 2, j, right_parts_);
      if (rows.size() == 0 || columns.size() == 0) continue;
      const int64_t first = chunks_ * slice / slices_, end = chunks_ * (slice + 1) / slices_;
      for (int64_t c = first; c < end; ++c) {
        const Chunk chunk = ChunkAt(c);
        Ahead ahead(*this, ChunkAt(std::min(c + 1, end - 1)), left, rows, right, columns);
        const auto multiply = [&](int64_t row, int64_t tap, const uint32_t* as, int64_t column,
                                  const uint32_t* bs) {
          ahead.Step();
          const int64_t block = (row * right_blocks_ + column) * taps_ + tap;
          loops_.multiply(
              kSide, std::min<int64_t>(2, columns.end - column) * kSide,
              chunk.count * chunk.pairs_of_row(), {as, 1, kSide}, {bs, panel_size(), kSide},
              {sums + slice * sums_size() + block * kBlock, kSide, taps_ * kBlock, 1, c > first});
        };
        const auto pack_right = [&](int64_t begin, int64_t last) {
          for (int64_t o = begin; o < last; ++o)
            PackRight(right, chunk, o, rights + (o - begin) * panel_size());
        };
        if (left_is_last()) {
          pack_right(columns.begin, columns.end);
          for (int64_t r = rows.begin; r < rows.end; ++r)
            for (int64_t tap = 0; tap < taps_; ++tap) {
              PackLeft(left, chunk, r, tap, lefts);
              for (int64_t o = columns.begin; o < columns.end; o += 2)
                multiply(r, tap, lefts, o, rights + (o - columns.begin) * panel_size());
            }
        } else {
          for (int64_t r = rows.begin; r < rows.end; ++r)
            PackLeft(left, chunk, r, 0, lefts + (r - rows.begin) * panel_size());
          for (int64_t o = columns.begin; o < columns.end; o += 2) {
            pack_right(o, std::min(o + 2, columns.end));
            for (int64_t r = rows.begin; r < rows.end; ++r)
              multiply(r, 0, lefts + (r - rows.begin) * panel_size(), o, rights);
          }
        }
      }
    }
  });
}

void OuterSums::AddSlices(float* block) const {
  for (int64_t s = 1; s < slices_; ++s) AddTo(block + s * sums_size(), kBlock, block);
}

}  // namespace singa::cpu
