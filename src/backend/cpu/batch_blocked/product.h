#pragma once

// Products of bfloat16 tiles, summed in float32. A tile of the left factor has 16 rows of 32 terms;
// a tile of the right factor has 16 columns of 32 terms, interleaved in pairs: [pair][column][2].
// This is the format of AMX, which does 16,384 operations on it in 16 cycles. AVX-512 with bfloat16
// processes it row by row.

#include <cstdint>

#include <string>
#include <type_traits>

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
/// rest, and again. Two hold its first 16 bits.
inline constexpr int64_t kMostParts = 3, kLeastParts = 2;
/// What multiplies (kAmx or kPlain), and the parts of a number.
struct PartsUnit {
  Unit unit;
  int64_t parts = kMostParts;
};
/// "amx float32 of bfloat16 parts", with what is special about it.
std::string NameOf(const PartsUnit& unit);
/// Elements of the parts of two tiles.
constexpr int64_t PartTiles(int64_t parts) { return parts * 2 * kTile; }
/// The largest relative error of a product of two numbers, beyond that of float32. Two parts leave
/// 2^-16 of each factor, and the product that is left out is as large.
constexpr double PartsError(int64_t parts) { return parts == kMostParts ? 0 : 0x1.8p-15; }

/// Calls f(a constant of this many parts).
template <class F>
auto WithParts(int64_t parts, const F& f) {
  return parts == kMostParts ? f(std::integral_constant<int64_t, kMostParts>())
                             : f(std::integral_constant<int64_t, kLeastParts>());
}

/// sums[2 · i + j] = the sum of (left tile i) · (right tile j) over `steps` tiles of numbers in
/// `by.parts` parts, 16 x 16 floats each. A factor lies as [step][part][tile]. Of the nine products
/// of three parts it adds the six largest: those that are left out are below 2^-24 of the product.
/// Of the four of two parts it adds three.
void MultiplyParts(const PartsUnit& by, const BFloat16* left, const BFloat16* right, int64_t steps,
                   float* sums);

}  // namespace singa::cpu::batch_blocked
