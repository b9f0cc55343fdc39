#pragma once

#include <array>
#include <cstdint>

namespace singa::reference {

/// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011):
/// four random words as a function of a 128-bit counter and a 64-bit key. With the seed as the key
/// and the position in the sequence as the counter, any thread can make any part of it.
inline std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

/// Random words of the sequence of `seed`, in order from any position: word p is word p mod 4 of
/// block p div 4.
class RandomWords {
 public:
  RandomWords(uint64_t seed, uint64_t position) : seed_(seed), position_(position) {
    if (position_ % 4 != 0) block_ = Block();
  }
  uint32_t Next() {
    if (position_ % 4 == 0) block_ = Block();
    return block_[position_++ % 4];
  }

 private:
  std::array<uint32_t, 4> Block() const {
    const uint64_t number = position_ / 4;
    return Philox({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0},
                  seed_);
  }

  uint64_t seed_;
  uint64_t position_;
  std::array<uint32_t, 4> block_{};
};

}  // namespace singa::reference
