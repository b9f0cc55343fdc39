#pragma once

// Products of tiles of bfloat16, summed in float32. A tile of the left factor has 16 rows, each
// with 32 numbers of a sum; one of the right factor has the 32 numbers of 16 columns, in pairs that
// lie side by side: [pair][column][2]. That is what AMX multiplies, 16,384 operations in 16 cycles;
// AVX-512 with bfloat16 does so row by row.

#include <cstdint>

#include "singa/core/half.h"

namespace singa::onednn::tiles {

inline constexpr int64_t kSide = 16;              ///< rows, columns, and pairs of a sum's numbers
inline constexpr int64_t kDepth = 2 * kSide;      ///< numbers of a sum
inline constexpr int64_t kTile = kSide * kDepth;  ///< elements of a tile
inline constexpr int64_t kSums = kSide * kSide;   ///< sums of two tiles

/// What multiplies: AMX, AVX-512 with bfloat16, or plain loops, for tests.
enum class Unit { kAmx, kAvx512, kPlain };
const char* NameOf(Unit unit);
/// Whether this CPU has it, and ONEDNN_MAX_CPU_ISA lets oneDNN use it.
bool IsThere(Unit unit);
/// The fastest that is there.
Unit BestUnit();

/// The tiles of a factor that are multiplied one after the other: `groups` times `rows` times
/// `columns` of them, so many tiles apart.
struct Walk {
  struct Steps {
    int64_t group, row, column;
  };
  int64_t groups, rows, columns;
  Steps left, right;
};

/// One or two tiles side by side, the second one `apart` elements from the first.
struct Factor {
  const BFloat16* first;
  int64_t apart;
  int64_t count;
};

/// Lets the calling thread multiply while it lives.
class Session {
 public:
  explicit Session(Unit unit);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  bool amx_;
};

/// sums[2 · i + j] = the sum of left tile i times right tile j over the walk, 16 x 16 floats each;
/// added to what is there if `add`.
void Multiply(Unit unit, const Walk& walk, const Factor& left, const Factor& right, float* sums,
              bool add);

}  // namespace singa::onednn::tiles
