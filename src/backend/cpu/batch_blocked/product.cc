#include "backend/cpu/batch_blocked/product.h"

#include <array>
#include <type_traits>

#include "core/device/instruction_set.h"
#include "core/device/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace singa::cpu::batch_blocked {
namespace {

/// Calls body(left, right, first) with the positions of all pairs of tiles of a walk.
template <class Body>
inline __attribute__((always_inline)) void ForTiles(const Walk& walk, const Body& body) {
  for (int64_t g = 0; g < walk.groups; ++g)
    for (int64_t r = 0; r < walk.rows; ++r) {
      int64_t left = (g * walk.left.group + r * walk.left.row) * kTile;
      int64_t right = (g * walk.right.group + r * walk.right.row) * kTile;
      for (int64_t c = 0; c < walk.columns; ++c) {
        body(left, right);
        left += walk.left.column * kTile;
        right += walk.right.column * kTile;
      }
    }
}

/// AMX reads denormal numbers as zeros, and writes zeros for them.
inline __attribute__((always_inline)) float Flushed(float value) {
  return __builtin_fabsf(value) < 0x1p-126f ? value * 0.0f : value;
}

/// sums += left · right for a tile of each, as TDPBF16PS does: even and odd terms are added up
/// separately, then together, then to the sum.
SINGA_MULTI_ISA void MultiplyTile(const BFloat16* left, const BFloat16* right, float* sums) {
  float factors[kDepth][kSide];
  for (int64_t k = 0; k < kDepth; ++k)
    for (int64_t column = 0; column < kSide; ++column)
      factors[k][column] = Flushed(static_cast<float>(right[k / 2 * kDepth + 2 * column + k % 2]));
  for (int64_t row = 0; row < kSide; ++row) {
    float totals[2][kSide] = {};
    for (int64_t k = 0; k < kDepth; ++k) {
      const float factor = Flushed(static_cast<float>(left[row * kDepth + k]));
      float* total = totals[k % 2];
      for (int64_t column = 0; column < kSide; ++column)  // the product is exact
        total[column] = Flushed(total[column] + factor * factors[k][column]);
    }
    for (int64_t column = 0; column < kSide; ++column) {
      float& sum = sums[row * kSide + column];
      sum = Flushed(Flushed(sum) + Flushed(totals[0][column] + totals[1][column]));
    }
  }
}

void MultiplyPlain(const Walk& walk, const Factor& left, const Factor& right, float* sums,
                   bool add) {
  for (int64_t i = 0; i < left.count; ++i)
    for (int64_t j = 0; j < right.count; ++j) {
      float* to = sums + (2 * i + j) * kSums;
      for (int64_t k = 0; !add && k < kSums; ++k) to[k] = 0;
      const BFloat16 *as = left.first + i * left.apart, *bs = right.first + j * right.apart;
      ForTiles(
          walk, [&](int64_t a, int64_t b)
                    __attribute__((always_inline)) { MultiplyTile(as + a, bs + b, to); });
    }
}

/// The products of parts that MultiplyParts adds: those of parts whose numbers add up to less than
/// `parts`, smaller ones first where that needs no further load of a tile. From one to the next
/// only one factor changes, and the first one has the first part of the right factor.
struct PairOfParts {
  int left, right;
};
template <int64_t kParts>
constexpr auto kPairsOfParts = std::to_array<PairOfParts>({{1, 0}, {0, 0}, {0, 1}});
template <>
constexpr auto kPairsOfParts<3> =
    std::to_array<PairOfParts>({{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}});

template <int64_t kParts>
constexpr bool ChangesOneFactor() {
  const auto& pairs = kPairsOfParts<kParts>;
  for (size_t i = 1; i < pairs.size(); ++i)
    if ((pairs[i].left == pairs[i - 1].left) == (pairs[i].right == pairs[i - 1].right))
      return false;
  return pairs[0].right == 0;
}
static_assert(ChangesOneFactor<2>() && ChangesOneFactor<3>());

template <int64_t kParts>
void MultiplyPartsPlain(const BFloat16* left, const BFloat16* right, int64_t steps, float* sums) {
  constexpr int64_t kStep = PartTiles(kParts);
  for (int64_t k = 0; k < 4 * kSums; ++k) sums[k] = 0;
  for (int64_t step = 0; step < steps; ++step, left += kStep, right += kStep)
    for (const PairOfParts& pair : kPairsOfParts<kParts>)
      for (int64_t i = 0; i < 2; ++i)
        for (int64_t j = 0; j < 2; ++j)
          MultiplyTile(left + (2 * pair.left + i) * kTile, right + (2 * pair.right + j) * kTile,
                       sums + (2 * i + j) * kSums);
}

#if defined(__x86_64__)

#define SINGA_TARGET(features) __attribute__((target(features)))

SINGA_TARGET("avx512f,avx512bf16")
void MultiplyAvx512(const Walk& walk, const Factor& left, const Factor& right, float* sums,
                    bool add) {
  for (int64_t i = 0; i < left.count; ++i)
    for (int64_t j = 0; j < right.count; ++j) {
      float* to = sums + (2 * i + j) * kSums;
      const BFloat16 *as = left.first + i * left.apart, *bs = right.first + j * right.apart;
      __m512 rows[kSide];
#pragma GCC unroll 16
      for (int64_t row = 0; row < kSide; ++row)
        rows[row] = add ? _mm512_loadu_ps(to + row * kSide) : _mm512_setzero_ps();
      for (int64_t g = 0; g < walk.groups; ++g)
        for (int64_t r = 0; r < walk.rows; ++r)
          for (int64_t c = 0; c < walk.columns; ++c) {
            const BFloat16* a =
                as + (g * walk.left.group + r * walk.left.row + c * walk.left.column) * kTile;
            const BFloat16* b =
                bs + (g * walk.right.group + r * walk.right.row + c * walk.right.column) * kTile;
            for (int64_t pair = 0; pair < kSide; ++pair) {
              const auto factors = (__m512bh)_mm512_loadu_si512(b + pair * kDepth);
#pragma GCC unroll 16
              for (int64_t row = 0; row < kSide; ++row) {
                int word;
                __builtin_memcpy(&word, a + row * kDepth + 2 * pair, sizeof(word));
                rows[row] = _mm512_dpbf16_ps(rows[row], (__m512bh)_mm512_set1_epi32(word), factors);
              }
            }
          }
#pragma GCC unroll 16
      for (int64_t row = 0; row < kSide; ++row) _mm512_storeu_ps(to + row * kSide, rows[row]);
    }
}

/// All tiles have 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

SINGA_TARGET("amx-tile") void Configure() {
  static constexpr TileConfiguration kConfiguration;
  _tile_loadconfig(&kConfiguration);
}
SINGA_TARGET("amx-tile") void Release() { _tile_release(); }

/// Sums are in tile registers 0 to 3, left tiles in 4 and 5, right tiles in 6 and 7.
template <int kLeft, int kRight>
SINGA_TARGET("amx-tile,amx-bf16")
void MultiplyAmx(const Walk& walk, const Factor& left, const Factor& right, float* sums, bool add) {
  constexpr int kBytes = 64;
  if (add) {
    _tile_loadd(0, sums, kBytes);
    if constexpr (kRight == 2) _tile_loadd(1, sums + kSums, kBytes);
    if constexpr (kLeft == 2) _tile_loadd(2, sums + 2 * kSums, kBytes);
    if constexpr (kLeft == 2 && kRight == 2) _tile_loadd(3, sums + 3 * kSums, kBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t g = 0; g < walk.groups; ++g)
    for (int64_t r = 0; r < walk.rows; ++r) {
      const BFloat16* a = left.first + (g * walk.left.group + r * walk.left.row) * kTile;
      const BFloat16* b = right.first + (g * walk.right.group + r * walk.right.row) * kTile;
      for (int64_t c = 0; c < walk.columns; ++c) {
        _tile_loadd(4, a, kBytes);
        _tile_loadd(6, b, kBytes);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kRight == 2) {
          _tile_loadd(7, b + right.apart, kBytes);
          _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (kLeft == 2) {
          _tile_loadd(5, a + left.apart, kBytes);
          _tile_dpbf16ps(2, 5, 6);
        }
        if constexpr (kLeft == 2 && kRight == 2) _tile_dpbf16ps(3, 5, 7);
        a += walk.left.column * kTile;
        b += walk.right.column * kTile;
      }
    }
  _tile_stored(0, sums, kBytes);
  if constexpr (kRight == 2) _tile_stored(1, sums + kSums, kBytes);
  if constexpr (kLeft == 2) _tile_stored(2, sums + 2 * kSums, kBytes);
  if constexpr (kLeft == 2 && kRight == 2) _tile_stored(3, sums + 3 * kSums, kBytes);
}

/// kPairsOfParts, with tiles loaded into registers once where the pair before has the same part.
template <int64_t kParts>
SINGA_TARGET("amx-tile,amx-bf16")
void MultiplyPartsAmx(const BFloat16* left, const BFloat16* right, int64_t steps, float* sums) {
  constexpr int kBytes = 64;
  constexpr int64_t kStep = PartTiles(kParts);
  constexpr const auto& kPairs = kPairsOfParts<kParts>;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
#define SINGA_NEW_LEFT(part)                               \
  _tile_loadd(4, left + 2 * (part)*kTile, kBytes);         \
  _tile_dpbf16ps(0, 4, 6);                                 \
  _tile_dpbf16ps(1, 4, 7);                                 \
  _tile_loadd(5, left + (2 * (part) + 1) * kTile, kBytes); \
  _tile_dpbf16ps(2, 5, 6);                                 \
  _tile_dpbf16ps(3, 5, 7)
#define SINGA_NEW_RIGHT(part)                               \
  _tile_loadd(6, right + 2 * (part)*kTile, kBytes);         \
  _tile_dpbf16ps(0, 4, 6);                                  \
  _tile_dpbf16ps(2, 5, 6);                                  \
  _tile_loadd(7, right + (2 * (part) + 1) * kTile, kBytes); \
  _tile_dpbf16ps(1, 4, 7);                                  \
  _tile_dpbf16ps(3, 5, 7)
  for (int64_t step = 0; step < steps; ++step, left += kStep, right += kStep) {
    _tile_loadd(6, right, kBytes);
    _tile_loadd(7, right + kTile, kBytes);
#pragma GCC unroll 6
    for (size_t i = 0; i < kPairs.size(); ++i) {
      if (i == 0 || kPairs[i].left != kPairs[i - 1].left) {
        SINGA_NEW_LEFT(kPairs[i].left);
      } else {
        SINGA_NEW_RIGHT(kPairs[i].right);
      }
    }
  }
#undef SINGA_NEW_LEFT
#undef SINGA_NEW_RIGHT
  _tile_stored(0, sums, kBytes);
  _tile_stored(1, sums + kSums, kBytes);
  _tile_stored(2, sums + 2 * kSums, kBytes);
  _tile_stored(3, sums + 3 * kSums, kBytes);
}

/// Asks Linux for permission to use the tile registers.
bool MayUseAmx() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // asm/prctl.h of newer kernels
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

#endif

}  // namespace

const char* NameOf(Unit unit) {
  return unit == Unit::kAmx ? "amx" : unit == Unit::kAvx512 ? "avx512_bf16" : "plain";
}

std::string NameOf(const PartsUnit& unit) {
  std::string name = "amx float32 of bfloat16 parts";
  if (unit.parts == kLeastParts) name += ", high precision";
  if (unit.unit == Unit::kPlain) name += ", plain";
  return name;
}

bool IsThere(Unit unit) {
  switch (unit) {
    case Unit::kAmx:
#if defined(__x86_64__)
      return AllowedInstructionSet() >= InstructionSet::kAmx && MayUseAmx();
#else
      return false;
#endif
    case Unit::kAvx512:
      return AllowedInstructionSet() >= InstructionSet::kAvx512Bf16;
    default:
      return true;
  }
}

Unit BestUnit() {
  for (const Unit unit : {Unit::kAmx, Unit::kAvx512})
    if (IsThere(unit)) return unit;
  return Unit::kPlain;
}

#if defined(__x86_64__)

Session::Session(Unit unit) : amx_(unit == Unit::kAmx) {
  if (amx_) Configure();
}
Session::~Session() {
  if (amx_) Release();
}

void Multiply(Unit unit, const Walk& walk, const Factor& left, const Factor& right, float* sums,
              bool add) {
  if (unit == Unit::kPlain) return MultiplyPlain(walk, left, right, sums, add);
  if (unit == Unit::kAvx512) return MultiplyAvx512(walk, left, right, sums, add);
  constexpr decltype(&MultiplyAmx<1, 1>) kWays[2][2] = {{MultiplyAmx<1, 1>, MultiplyAmx<1, 2>},
                                                        {MultiplyAmx<2, 1>, MultiplyAmx<2, 2>}};
  kWays[left.count - 1][right.count - 1](walk, left, right, sums, add);
}

void MultiplyParts(const PartsUnit& by, const BFloat16* left, const BFloat16* right, int64_t steps,
                   float* sums) {
  WithParts(by.parts, [&]<int64_t kParts>(std::integral_constant<int64_t, kParts>) {
    (by.unit == Unit::kAmx ? MultiplyPartsAmx<kParts> : MultiplyPartsPlain<kParts>)(left, right,
                                                                                    steps, sums);
  });
}

#else

Session::Session(Unit) : amx_(false) {}
Session::~Session() = default;

void Multiply(Unit, const Walk& walk, const Factor& left, const Factor& right, float* sums,
              bool add) {
  MultiplyPlain(walk, left, right, sums, add);
}

void MultiplyParts(const PartsUnit& by, const BFloat16* left, const BFloat16* right, int64_t steps,
                   float* sums) {
  WithParts(by.parts, [&]<int64_t kParts>(std::integral_constant<int64_t, kParts>) {
    MultiplyPartsPlain<kParts>(left, right, steps, sums);
  });
}

#endif

}  // namespace singa::cpu::batch_blocked
