#pragma once

// Float32 products of matrices, by the six largest of the nine products of their numbers' three
// bfloat16 parts, or by three of the four of two parts (Float32Precision::kHigh). The chunks of 128
// terms, in which sums are made, depend on the shape alone, so results do not depend on the number
// of threads or on how the work is divided.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/parts_product/packing.h"

namespace singa::cpu::parts_product {

/// What happens to sums before they are stored: alpha · sum + beta · first + second, then ReLU.
struct Finish {
  float alpha = 1, beta = 1;
  bool relu = false;
  bool streams = false;  ///< past the caches; rows of 16 aligned floats alone
};

/// Whether results of so many bytes may be streamed to rows with this many floats between them: it
/// is possible, and they would not stay in the caches.
bool CanStream(const float* to, int64_t row_step, int64_t bytes);

/// Results of a product.
class Target {
 public:
  virtual ~Target() = default;
  /// Stores the 32 x 32 results from (row, column) on. `sums` are as in MultiplyParts.
  virtual void Store(int64_t batch, int64_t row, int64_t column, const float* sums) const = 0;

  Finish finish;
};

/// Where up to 16 x 16 sums go, row by row, and what is added. Null addends: nothing.
struct TilePlaces {
  int64_t rows, columns;
  float* to[batch_blocked::kSide];
  const float* first[batch_blocked::kSide];
  int64_t first_step;  ///< between columns: 0 or 1
  const float* second[batch_blocked::kSide];
};
void StoreTile(const float* sums, const TilePlaces& places, const Finish& finish);

/// A matrix in rows of memory, or a batch of them.
struct MatrixTarget final : Target {
  float* data;
  int64_t rows, columns, batch_step;
  const float* addend = nullptr;
  int64_t addend_row = 0, addend_column = 0;  ///< steps: 0 where it is broadcast

  void Store(int64_t batch, int64_t row, int64_t column, const float* sums) const override;
};

/// sum = a + b, of two panels.
void AddSums(const float* a, const float* b, float* sum);

struct Sizes {
  int64_t batch, rows, columns, terms;
};

class BlockedProduct {
 public:
  BlockedProduct(const PartsUnit& by, const Sizes& sizes, int threads);

  size_t workspace_bytes() const;
  void Run(const Factor& left, const Factor& right, const Target& target, void* workspace) const;

 private:
  void PackShared(const Factor& factor, char* workspace) const;
  void RunUnit(int64_t unit, const Factor& left, const Factor& right, const Target& target,
               const char* shared, char* own, float* partial) const;
  void AddPieces(const Target& target, const float* partial) const;

  struct Panels;
  size_t BytesOf(int64_t panels) const;
  Panels PanelsIn(char* memory, int64_t count, int64_t step) const;

  PartsUnit by_;
  int64_t packed_, packed_bytes_;  ///< elements and bytes of a packed panel of a chunk
  Sizes sizes_;
  int threads_;
  int64_t row_panels_, column_panels_, chunks_;
  int64_t pieces_;  ///< of each sum, which are computed apart and added in order
  int64_t row_blocks_, column_blocks_;
  int64_t rows_, columns_;  ///< panels of the largest block
  /// The factor that is packed once, since several blocks read it.
  bool shares_left_ = false, shares_right_ = false;
  size_t shared_bytes_ = 0, own_bytes_ = 0, partial_bytes_ = 0;
};

}  // namespace singa::cpu::parts_product
