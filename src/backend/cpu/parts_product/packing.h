#pragma once

// Float32 factors of a product, packed as tiles of their three or two parts in bfloat16
// (batch_blocked/product.h). A panel is 32 rows of the left factor or 32 columns of the right one;
// a chunk is 128 terms. A packed panel of a chunk fits in half of a first-level cache.

#include <cstdint>

#include "backend/cpu/batch_blocked/product.h"

namespace singa::cpu::parts_product {

using batch_blocked::PartsUnit;
using batch_blocked::Unit;

inline constexpr int64_t kPanel = 2 * batch_blocked::kSide;
inline constexpr int64_t kRun = 16;  ///< floats that are neighbours in memory
inline constexpr int64_t kChunkRuns = 8;
inline constexpr int64_t kChunk = kChunkRuns * kRun;
inline constexpr int64_t kChunkSteps = kChunk / batch_blocked::kDepth;
/// Elements of a packed panel of a chunk.
constexpr int64_t PackedSize(int64_t parts) {
  return kChunkSteps * batch_blocked::PartTiles(parts);
}
/// Sums of two panels.
inline constexpr int64_t kPanelSums = kPanel * kPanel;

/// Sixteen zeros, which stand for what is not there.
alignas(64) inline constexpr float kZeros[kRun] = {};

/// Where the elements of a panel of a chunk are, in runs of up to 16 floats. All pointers are set.
///
/// - along: run r of row i of the panel has terms 16 · r to 16 · r + 15, at runs[32 · r + i].
/// - across: run r of term k has rows 16 · r to 16 · r + 15 of the panel, at runs[128 · r + k].
///
/// ("Rows" are columns for the right factor.)
struct Runs {
  const float* at[kChunkRuns * kPanel];
  int64_t length[kChunkRuns];  ///< floats in the runs with a number; across: of 0 and 1
};

/// A factor. `row` is a multiple of 32, `term` one of 128.
class Factor {
 public:
  explicit Factor(bool along) : along_(along) {}
  virtual ~Factor() = default;
  /// Terms of a row are neighbours in memory; else rows of a term are.
  bool along() const { return along_; }
  virtual void Locate(int64_t batch, int64_t row, int64_t term, Runs* runs) const = 0;

 private:
  bool along_;
};

/// Rows, or terms if not `along`, are `step` floats apart, matrices of a batch `batch_step`.
class Matrix final : public Factor {
 public:
  Matrix(const float* data, int64_t step, bool along, int64_t rows, int64_t terms,
         int64_t batch_step = 0)
      : Factor(along),
        data_(data),
        step_(step),
        rows_(rows),
        terms_(terms),
        batch_step_(batch_step) {}
  void Locate(int64_t batch, int64_t row, int64_t term, Runs* runs) const override;

 private:
  const float* data_;
  int64_t step_, rows_, terms_, batch_step_;
};

enum class Side { kLeft, kRight };

/// Packs `steps` times 32 terms of a panel. Returns the largest absolute value's bits, which for
/// infinities and NaN are larger than for numbers. `next` is packed next, so it is prefetched.
uint32_t Pack(const PartsUnit& by, Side side, bool along, const Runs& runs, int64_t steps,
              BFloat16* to, const Runs& next);

/// Whether products of parts are as exact as they can be for panels with these largest values. They
/// are not if there are infinities or NaN, if a sum could overflow, or if numbers are so small that
/// AMX, which has no denormal numbers, would lose parts.
bool HasParts(uint32_t left, uint32_t right);

/// The product of two panels of a chunk by float32 arithmetic, in the place of MultiplyParts.
void MultiplyPlainly(const Runs& left, bool left_along, const Runs& right, bool right_along,
                     int64_t steps, float* sums);

}  // namespace singa::cpu::parts_product
