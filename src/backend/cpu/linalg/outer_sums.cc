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
      right_blocks_(sizes.right / kSide) {
  if (sizes.length > kChunkTerms) {
    together_ = 1;
    piece_ = RoundUp(CeilDivide(sizes.length, CeilDivide(sizes.length, kChunkTerms)), 2);
    chunks_ = sizes.segments * CeilDivide(sizes.length, piece_);
  } else {
    together_ = std::clamp<int64_t>(kChunkTerms / RoundUp(sizes.length, 2), 1, sizes.segments);
    piece_ = sizes.length;
    chunks_ = CeilDivide(sizes.segments, together_);
  }
  pairs_ = together_ * CeilDivide(piece_, 2);
  const int64_t most = std::max<int64_t>(sizes.segments * sizes.length / kSliceTerms, 1);
  // Sums and panels of a task share the cache. Further parts give threads work; they change no sum.
  const auto fits = [&] {
    return PartOfLeft() * PartOfRight() * kBlock * kWordBytes <= cache * 3 / 8 &&
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
  if (together_ > 1 || piece_ == sizes_.length)
    return {index * together_, std::min(together_, sizes_.segments - index * together_), 0, piece_};
  const int64_t pieces = CeilDivide(sizes_.length, piece_), first = index % pieces * piece_;
  return {index / pieces, 1, first, std::min(piece_, sizes_.length - first)};
}

/// Fetches what the next chunk packs while this one is multiplied. Processors follow many short
/// runs of memory badly by themselves.
class OuterSums::Ahead {
 public:
  Ahead(const Chunk& chunk, const OuterFactor& left, const Range& rows, const OuterFactor& right,
        const Range& columns)
      : chunk_(chunk),
        left_(left),
        right_(right),
        rows_(rows),
        columns_(columns),
        runs_((rows.size() + columns.size()) * chunk.count),
        step_(CeilDivide(runs_ * chunk.terms, rows.size() * CeilDivide(columns.size(), 2))) {}

  /// Called before each product.
  // Inlined: GCC drops calls of functions that do nothing but fetch.
  SINGA_INLINE void Step() {
    for (int64_t left = step_; left > 0 && run_ < runs_;) {
      const int64_t count = std::min(left, chunk_.terms - term_);
      FetchRun(count);
      left -= count;
      term_ += count;
      if (term_ < chunk_.terms) return;
      term_ = 0;
      ++run_;
    }
  }

 private:
  SINGA_INLINE void FetchRun(int64_t count) const {
    constexpr int64_t kLine = 64 / sizeof(BFloat16);
    const int64_t block = run_ / chunk_.count, segment = chunk_.segment + run_ % chunk_.count;
    const bool is_left = block < rows_.size();
    const OuterFactor& factor = is_left ? left_ : right_;
    const int64_t column = is_left ? rows_.begin + block : columns_.begin + block - rows_.size();
    // Two blocks in a line are fetched once.
    if (factor.block_step < kLine && column % 2 == 1) return;
    const BFloat16* from = factor.data + segment * factor.segment_step +
                           column * factor.block_step + (chunk_.first + term_) * factor.term_step;
    const int64_t terms = std::max<int64_t>(kLine / factor.term_step, 1);
    for (int64_t t = 0; t < count; t += terms)
      __builtin_prefetch(from + t * factor.term_step, 0, 2);
  }

  Chunk chunk_;
  const OuterFactor &left_, &right_;
  Range rows_, columns_;
  int64_t runs_, step_;
  int64_t run_ = 0, term_ = 0;  // the next one
};

void OuterSums::Pack(const OuterFactor& factor, const Chunk& chunk, const Range& blocks,
                     uint32_t* to) const {
  const int64_t each = chunk.pairs_of_segment();
  for (int64_t b = blocks.begin; b < blocks.end; ++b, to += panel_size())
    for (int64_t i = 0; i < chunk.count; ++i)
      loops_.join(factor.data + (chunk.segment + i) * factor.segment_step + b * factor.block_step +
                      chunk.first * factor.term_step,
                  factor.term_step, chunk.terms, to + i * each * kSide);
}

void OuterSums::Multiply(const OuterFactor& left, const OuterFactor& right, float* sums,
                         uint32_t* packed) const {
  const int64_t parts = left_parts_ * right_parts_;
  ParallelItems(parts * slices_, threads_, [&](Items& items) {
    uint32_t* lefts = packed + items.thread() * packed_size();
    uint32_t* rights = lefts + (left_is_larger() ? 1 : PartOfLeft()) * panel_size();
    for (const int64_t task : items) {
      const int64_t slice = task / parts, i = task % parts / right_parts_, j = task % right_parts_;
      const Range rows = PartOf(left_blocks_, 1, i, left_parts_);
      const Range columns = PartOf(right_blocks_, 2, j, right_parts_);
      if (rows.size() == 0 || columns.size() == 0) continue;
      const int64_t first = chunks_ * slice / slices_, end = chunks_ * (slice + 1) / slices_;
      for (int64_t c = first; c < end; ++c) {
        const Chunk chunk = ChunkAt(c);
        Ahead ahead(ChunkAt(std::min(c + 1, end - 1)), left, rows, right, columns);
        const auto multiply = [&](int64_t row, const uint32_t* as, int64_t column,
                                  const uint32_t* bs) {
          ahead.Step();
          loops_.multiply(kSide, std::min<int64_t>(2, columns.end - column) * kSide,
                          chunk.count * chunk.pairs_of_segment(), {as, 1, kSide},
                          {bs, panel_size(), kSide},
                          {sums + slice * sums_size() + (row * right_blocks_ + column) * kBlock,
                           kSide, kBlock, 1, c > first});
        };
        // Panels of the larger factor are multiplied as soon as they are packed.
        if (left_is_larger()) {
          Pack(right, chunk, columns, rights);
          for (int64_t r = rows.begin; r < rows.end; ++r) {
            Pack(left, chunk, {r, r + 1}, lefts);
            for (int64_t o = columns.begin; o < columns.end; o += 2)
              multiply(r, lefts, o, rights + (o - columns.begin) * panel_size());
          }
        } else {
          Pack(left, chunk, rows, lefts);
          for (int64_t o = columns.begin; o < columns.end; o += 2) {
            Pack(right, chunk, {o, std::min(o + 2, columns.end)}, rights);
            for (int64_t r = rows.begin; r < rows.end; ++r)
              multiply(r, lefts + (r - rows.begin) * panel_size(), o, rights);
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
