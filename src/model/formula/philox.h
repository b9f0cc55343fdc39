#pragma once

#include <array>
#include <cstdint>

namespace singa {

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011)
// computes four random words from a 128-bit counter and a 64-bit key. The seed is the key and the
// position in the sequence the counter, so any thread can compute any part of the sequence.

inline constexpr int kPhiloxRounds = 10;

/// One round on the words of a counter.
constexpr void PhiloxRound(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t key0,
                           uint32_t key1) {
  const uint64_t product0 = uint64_t{0xD2511F53} * c0;
  const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
  c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
  c1 = static_cast<uint32_t>(product1);
  c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
  c3 = static_cast<uint32_t>(product0);
}

/// The key of the next round.
constexpr void PhiloxNextKey(uint32_t& key0, uint32_t& key1) {
  key0 += 0x9E3779B9;
  key1 += 0xBB67AE85;
}

constexpr std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    PhiloxRound(counter[0], counter[1], counter[2], counter[3], key0, key1);
    PhiloxNextKey(key0, key1);
  }
  return counter;
}

/// The random words of the sequence of `seed`, from any position. Word p is word p mod 4 of block
/// p div 4.
class RandomWords {
 public:
  constexpr RandomWords(uint64_t seed, uint64_t position) : seed_(seed), position_(position) {
    if (position_ % 4 != 0) block_ = Block();
  }
  constexpr uint32_t Next() {
    if (position_ % 4 == 0) block_ = Block();
    return block_[position_++ % 4];
  }

 private:
  constexpr std::array<uint32_t, 4> Block() const {
    const uint64_t number = position_ / 4;
    return Philox({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0},
                  seed_);
  }

  uint64_t seed_;
  uint64_t position_;
  std::array<uint32_t, 4> block_{};
};

}  // namespace singa
