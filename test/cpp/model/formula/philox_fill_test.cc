#include "model/formula/philox_fill.h"

#include <gtest/gtest.h>

#include <vector>

namespace singa {
namespace {

using Words = std::array<uint32_t, 4>;

// The test vectors of the Philox authors' library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomWords, AnyPositionContinuesTheSequence) {
  RandomWords all(7, 0);
  std::array<uint32_t, 64> words;
  for (uint32_t& word : words) word = all.Next();
  EXPECT_EQ(words[0], Philox({0, 0, 0, 0}, 7)[0]);
  EXPECT_EQ(words[6], Philox({1, 0, 0, 0}, 7)[2]);
  for (uint64_t start = 0; start < 9; ++start) {
    RandomWords part(7, start);
    for (uint64_t i = start; i < words.size(); ++i) ASSERT_EQ(part.Next(), words[i]);
  }
  EXPECT_EQ(RandomWords(7, uint64_t{1} << 36).Next(), Philox({0, 4, 0, 0}, 7)[0]);
}

TEST(PhiloxFill, IsAnyPartOfTheSequence) {
  const uint64_t seed = 0x299f31d0a4093822u;
  for (const uint64_t start : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 34) - 3, uint64_t{4099}}) {
    for (const int64_t n : {1, 3, 4, 127, 128, 129, 1000}) {
      std::vector<uint32_t> words(static_cast<size_t>(n) + 1, 7);
      PhiloxFill(seed, start, n, words.data());
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t p = start + static_cast<uint64_t>(i), block = p / 4;
        const Words expected =
            Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, seed);
        ASSERT_EQ(words[i], expected[p % 4]) << start << " + " << i;
      }
      EXPECT_EQ(words[n], 7u) << "written past the end";
    }
  }
}

}  // namespace
}  // namespace singa
