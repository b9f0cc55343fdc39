#include "distributed/collectives/rank_group.h"

#include <signal.h>

#include "distributed/collectives/collectives.h"
#include "distributed/collectives/ordered_sum.h"
#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

using namespace distributed;

void SumOn(const std::string& job, int rank, const std::vector<std::string>& machines) {
  const int world = static_cast<int>(machines.size());
  const Nodes nodes(rank, machines);
  const Exchange exchange = ExchangeOnMachine(job, rank, world, 20);
  RankGroup group(job, nodes, 20, Meet(nodes, job, "", true, exchange));
  uint64_t number = 0;
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{600000}}) {
    std::vector<float> own = Term(rank, count), want(count);
    ByteStream stream;
    stream.Add(own.data(), count * sizeof(float));
    group.Describe(++number, "sum");
    group.CompareDescriptions(number, "a test");
    AllReduce(group, {&stream, 1}, kFloat32, 0.3, stream, "a test");
    group.Finish();
    std::vector<std::vector<float>> terms;
    std::vector<const void*> from;
    for (int r = 0; r < world; ++r) {
      terms.push_back(Term(r, count));
      from.push_back(terms.back().data());
    }
    OrderedSum(kFloat32, 0.3, from.data(), world, static_cast<int64_t>(count), want.data());
    Require(own == want, "sum of " + std::to_string(count));
  }
}

TEST(RankGroup, SumsDoNotDependOnThePlaces) {
  const std::vector<std::vector<std::string>> placements = {
      {"a", "a"},      {"a", "b"},      {"a", "b", "a", "b"},          {"a", "a", "b"},
      {"a", "b", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d", "e", "f"}};
  for (const std::vector<std::string>& machines : placements) {
    const std::string job = JobName();
    const Texts texts = InProcesses(static_cast<int>(machines.size()),
                                    [&](int rank) { return SumOn(job, rank, machines); });
    ExpectAll(texts, "right");
  }
}

TEST(RankGroup, ARankThatIsStoppedAtTheEndIsTold) {
  for (const std::vector<std::string>& machines :
       {std::vector<std::string>{"a", "a"}, std::vector<std::string>{"a", "b"}}) {
    const std::string job = JobName();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const Texts texts = InProcesses(2, [&](int rank) -> std::string {
      const Nodes nodes(rank, machines);
      const Exchange exchange = ExchangeOnMachine(job, rank, 2, 20);
      RankGroup group(job, nodes, 1, Meet(nodes, job, "", true, exchange));
      pid_t other = getpid();
      if (rank == 1) {
        EXPECT_EQ(write(ends[1], &other, sizeof(other)), sizeof(other));
        alarm(60);  // in case that rank 0 fails before it stops this one
        while (true) pause();
      }
      EXPECT_EQ(read(ends[0], &other, sizeof(other)), sizeof(other));
      kill(other, SIGSTOP);  // now, since rank 0 has joined
      const std::string text = TextOf([&] { group.Leave(); });
      kill(other, SIGKILL);
      return text;
    });
    ExpectPart(texts[0], "is stopped: it gave no sign of life for 1.");
    EXPECT_EQ(texts[1], "killed");
    close(ends[0]);
    close(ends[1]);
  }
}

}  // namespace
}  // namespace singa::test
