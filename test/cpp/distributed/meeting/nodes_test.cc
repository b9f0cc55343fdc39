#include "distributed/meeting/nodes.h"

#include "support.h"

namespace singa::test {
namespace {

using distributed::Nodes;

TEST(Nodes, AreRunsOfRanksOnAMachine) {
  const Nodes nodes(3, {"a", "a", "b", "b", "b", "c"});
  EXPECT_EQ(nodes.count(), 3);
  EXPECT_EQ(nodes.world_size(), 6);
  EXPECT_EQ(nodes.own(), 1);
  EXPECT_EQ(nodes.first(1), 2);
  EXPECT_EQ(nodes.end(1), 5);
  EXPECT_EQ(nodes.end(2), 6);
  EXPECT_EQ(nodes.of(5), 2);
  EXPECT_FALSE(nodes.is_first());
  EXPECT_TRUE(nodes.IsLocal(4));
  EXPECT_FALSE(nodes.IsLocal(5));
  EXPECT_EQ(nodes.local_rank(), 1);
  EXPECT_EQ(nodes.local_size(), 3);
}

TEST(Nodes, AMachineWhoseRanksAreApartIsSeveral) {
  const Nodes nodes(2, {"a", "b", "a", "b"});
  EXPECT_EQ(nodes.count(), 4);
  EXPECT_TRUE(nodes.is_first());
  EXPECT_EQ(nodes.local_rank(), 1);  // the second one of "a"
  EXPECT_EQ(nodes.local_size(), 2);
}

TEST(Nodes, RefusesWrongPlaces) {
  EXPECT_ERROR(std::invalid_argument, "world_size must be from 1 to 4096", Nodes(0, {}));
  EXPECT_ERROR(std::invalid_argument, "rank must be from 0 to 1", Nodes(2, {"a", "b"}));
}

}  // namespace
}  // namespace singa::test
