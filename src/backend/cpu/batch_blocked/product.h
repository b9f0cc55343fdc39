#pragma once

// Products of bfloat16 tiles, summed in float32. A tile of the left factor has 16 rows of 32 terms;
// a tile of the right factor has 16 columns of 32 terms, interleaved in pairs: [pair][column][2].
// This is the format of AMX, which does 16,384 operations on it in 16 cycles. AVX-512 with bfloat16
// processes it row by row.

#include <cstdint>

#include "singa/core/half.h"

namespace singa::cpu::batch_blocked {

inline constexpr int64_t kSide = 16;              ///< rows, columns, and pairs of terms of a tile
inline constexpr int64_t kDepth = 2 * kSide;      ///< terms of a sum
inline constexpr int64_t kTile = kSide * kDepth;  ///< elements of a tile
inline constexpr int64_t kSums = kSide * kSide;   ///< sums of a product of two tiles

/// The instructions that multiply: AMX, AVX-512 with bfloat16, or plain loops (for tests), which
/// have the bits of AMX.
enum class Unit { kAmx, kAvx512, kPlain };
const char* NameOf(Unit unit);
/// Whether this CPU has the unit, and ONEDNN_MAX_CPU_ISA allows oneDNN to use it.
bool IsThere(Unit unit);
/// The fastest available unit.
Unit BestUnit();

/// The sequence of a factor's tiles to multiply: `groups` x `rows` x `columns` tiles, with these
/// steps in tiles.
struct Walk {
  struct Steps {
    int64_t group, row, column;
  };
  int64_t groups, rows, columns;
  Steps left, right;
};

/// One tile, or two that are `apart` elements apart.
struct Factor {
  const BFloat16* first;
  int64_t apart;
  int64_t count;
};

/// Lets the calling thread multiply during its lifetime.
class Session {
 public:
  explicit Session(Unit unit);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  bool amx_;
};

/// sums[2 · i + j] = the sum of (left tile i) · (right tile j) over the walk, 16 x 16 floats each;
/// added to `sums` if `add`.
void Multiply(Unit unit, const Walk& walk, const Factor& left, const Factor& right, float* sums,
              bool add);

/// A float32 number is the sum of three bfloat16 numbers: the nearest one, the nearest one to the
/// rest, and again.
inline constexpr int64_t kParts = 3;
/// Elements of the parts of two tiles.
inline constexpr int64_t kPartTiles = kParts * 2 * kTile;

/// sums[2 · i + j] = the sum of (left tile i) · (right tile j) over `steps` tiles of numbers in
/// three parts, 16 x 16 floats each. A factor lies as [step][part][tile]. Of the nine products of
/// parts it adds the six largest: those that are left out are below 2^-24 of the product. The units
/// are kAmx and kPlain.
void MultiplyParts(Unit unit, const BFloat16* left, const BFloat16* right, int64_t steps,
                   float* sums);

}  // namespace singa::cpu::batch_blocked
