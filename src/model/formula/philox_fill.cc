#include "model/formula/philox_fill.h"

#include <algorithm>

#include "core/device/parallel.h"

namespace singa {

namespace {

constexpr int64_t kLanes = 32;  // blocks computed together, for the vector units

// words[4·i + k] = lane k of block (first + i), for i in [0, kLanes).
SINGA_MULTI_ISA void Blocks(uint64_t seed, uint64_t first, uint32_t* words) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    const uint64_t counter = first + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(counter);
    c1[i] = static_cast<uint32_t>(counter >> 32);
    c2[i] = c3[i] = 0;
  }
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int64_t i = 0; i < kLanes; ++i) PhiloxRound(c0[i], c1[i], c2[i], c3[i], key0, key1);
    PhiloxNextKey(key0, key1);
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

}  // namespace

void PhiloxFill(uint64_t seed, uint64_t position, int64_t n, uint32_t* words) {
  constexpr int64_t kGroup = 4 * kLanes;
  uint32_t group[kGroup];
  while (n > 0) {
    const auto skip = static_cast<int64_t>(position % 4);
    const int64_t count = std::min(n, kGroup - skip);
    if (count == kGroup) {
      Blocks(seed, position / 4, words);
    } else {
      Blocks(seed, position / 4, group);
      std::copy_n(group + skip, count, words);
    }
    position += static_cast<uint64_t>(count);
    words += count;
    n -= count;
  }
}

}  // namespace singa
