#pragma once

// Sums of outer products of bfloat16 numbers over many terms, such as gradients of filters over
// pixels: sums[tap][l][r] = Σ over terms t of left[t under the tap][l] · right[t][r].
//
// Terms lie in rows, such as those of images. Some of them, a chunk, are packed as pairs and
// multiplied while they are in the caches. Tasks are ranges of columns of both factors, and, where
// these are few, slices of the terms, which have sums of their own. How many slices there are
// depends on the sizes alone, and so do all results.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/linalg/pair_product.h"
#include "core/device/cache_size.h"
#include "core/device/parallel.h"
#include "core/tensor/round_up.h"
#include "singa/core/half.h"

namespace singa::cpu {

/// Column c of term t in row y of an image is at
/// data[image · image_step + y · row_step + t · term_step + c / 16 · block_step + c % 16].
struct OuterFactor {
  const BFloat16* data;
  int64_t image_step, row_step, term_step, block_step;
};

/// Along one axis, output `out` is under tap `tap` of a filter at input out · stride + tap ·
/// dilation − pad, if that is one of `inputs`.
struct TapAxis {
  int64_t outputs, inputs;
  int64_t taps = 1, stride = 1, dilation = 1, pad = 0;

  int64_t At(int64_t out, int64_t tap) const { return out * stride + tap * dilation - pad; }
};

class OuterSums {
 public:
  struct Sizes {
    int64_t left, right;  ///< columns, multiples of 16
    int64_t images;
    TapAxis down, across;  ///< of the right factor's rows and terms, under the left factor's
  };
  /// Side of the blocks of results, and their elements.
  static constexpr int64_t kSide = 16, kBlock = kSide * kSide;

  /// `cache`: bytes of a core's second-level cache.
  OuterSums(const PairLoops& loops, const Sizes& sizes, int threads,
            int64_t cache = SecondLevelCacheBytes());

  size_t workspace_bytes() const;

  /// Calls store(block of left columns, block of right columns, tap, 16 x 16 sums) for each block,
  /// from any thread.
  template <class Store>
  void Run(const OuterFactor& left, const OuterFactor& right, void* workspace,
           const Store& store) const {
    auto* sums = static_cast<float*>(workspace);
    Multiply(left, right, sums, reinterpret_cast<uint32_t*>(sums + slices_ * sums_size()));
    ParallelFor(sums_size() / kBlock, kParallelGrain / (kBlock * (1 + slices_)) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    AddSlices(sums + i * kBlock);
                    const int64_t pair = i / taps_;
                    store(pair / right_blocks_, pair % right_blocks_, i % taps_, sums + i * kBlock);
                  }
                });
  }

 private:
  /// Terms that are packed together: of `count` rows from `row` on, counted over all images,
  /// `terms` from `first` on.
  struct Chunk {
    int64_t row, count, first, terms;
    int64_t pairs_of_row() const { return (terms + 1) / 2; }
  };
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  /// Blocks of the largest part of a factor's columns, and part i of them.
  int64_t PartOfLeft() const { return CeilDivide(left_blocks_, left_parts_); }
  int64_t PartOfRight() const { return 2 * CeilDivide(CeilDivide(right_blocks_, 2), right_parts_); }
  static Range PartOf(int64_t blocks, int64_t unit, int64_t i, int64_t parts) {
    const int64_t units = CeilDivide(blocks, unit);
    return {units * i / parts * unit, std::min(blocks, units * (i + 1) / parts * unit)};
  }

  int64_t sums_size() const { return left_blocks_ * right_blocks_ * taps_ * kBlock; }
  int64_t panel_size() const { return pairs_ * kSide; }
  /// Whether panels of the left factor are packed just before they are multiplied.
  bool left_is_last() const { return taps_ > 1 || PartOfLeft() > PartOfRight(); }
  /// Words of a thread: all panels of the other factor.
  int64_t packed_size() const {
    return (left_is_last() ? 1 + PartOfRight() : PartOfLeft() + 2) * panel_size();
  }
  Chunk ChunkAt(int64_t index) const;
  void Multiply(const OuterFactor& left, const OuterFactor& right, float* sums,
                uint32_t* packed) const;
  class Ahead;
  /// Packs a block of columns as a panel; of the left factor what is under a tap.
  void PackRight(const OuterFactor& factor, const Chunk& chunk, int64_t block, uint32_t* to) const;
  void PackLeft(const OuterFactor& factor, const Chunk& chunk, int64_t block, int64_t tap,
                uint32_t* to) const;
  const BFloat16* At(const OuterFactor& factor, int64_t image, int64_t row, int64_t block,
                     int64_t term) const {
    return factor.data + image * factor.image_step + row * factor.row_step +
           block * factor.block_step + term * factor.term_step;
  }
  void AddSlices(float* block) const;

  const PairLoops& loops_;
  Sizes sizes_;
  int threads_;
  int64_t left_blocks_, right_blocks_;
  int64_t taps_;
  int64_t together_, piece_;  ///< of a chunk: rows, terms of each
  int64_t pairs_;             ///< the most of a chunk
  int64_t chunks_;
  int64_t left_parts_ = 1, right_parts_ = 1, slices_ = 1;  ///< of tasks
};

}  // namespace singa::cpu
