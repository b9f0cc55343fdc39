// Ranks that are about to launch captured collectives, some of them or all.

#include "distributed/collectives/communicator.h"
#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

/// The sum over three ranks that the caller has begun.
std::string Sum(Communicator& c) {
  const Tensor t = FromValues({2}, {1.0 + c.global_rank, 5});
  c.AllReduce({t});
  return Values(t) == Vector{6, 15} ? "right" : "wrong";
}

TEST(Launch, AllRanksAgreeUnderOneNumber) {
  const Texts texts = InRanks(3, [](Communicator& c) {
    const uint64_t first = c.impl().AgreeToLaunch("step", 7);
    const std::string sum = Sum(c);
    return std::to_string(first) + sum + std::to_string(c.impl().AgreeToLaunch("step", 8));
  });
  EXPECT_EQ(texts, Texts(3, "1right3"));
}

TEST(Launch, OtherStatesAreNoError) {
  const Texts texts = InRanks(3, [](Communicator& c) {
    const uint64_t agreed = c.impl().AgreeToLaunch("step", c.global_rank == 1 ? 0 : 4);
    return std::to_string(agreed) + Sum(c);
  });
  EXPECT_EQ(texts, Texts(3, "0right"));
}

TEST(Launch, NobodyLaunchesBesideRanksThatDoSomethingElse) {
  for (int other : {0, 1, 2}) {
    const Texts texts = InRanks(3, [&](Communicator& c) {
      std::string text = c.global_rank == other ? "0" : "";
      for (int i = 0; i < 3; ++i) {
        if (c.global_rank != other) text = std::to_string(c.impl().AgreeToLaunch("step", 4));
        if (text != "0") return "rank " + std::to_string(c.global_rank) + " launches";
        if (const std::string sum = Sum(c); sum != "right") return sum;
      }
      return std::to_string(c.impl().AgreeToLaunch("step", 4) > 0);
    });
    EXPECT_EQ(texts, Texts(3, "1"));
  }
}

TEST(Launch, OtherTextsAreAnErrorOfAll) {
  const Texts texts = InRanks(3, [](Communicator& c) {
    c.SetContext("update " + std::to_string(c.global_rank / 2));
    c.impl().AgreeToLaunch("step", 4);
  });
  ExpectAll(texts, texts[0]);
  ExpectPart(texts[0], "ranks 0 and 1: update 0; rank 2: update 1");
}

TEST(Launch, OneRankAlwaysMay) {
  EXPECT_EQ(Communicator::Join("", 0, 1)->impl().AgreeToLaunch("step", 4), 1u);
}

}  // namespace
}  // namespace singa::test
