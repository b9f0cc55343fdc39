#include "distributed/rendezvous.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "distributed/socket.h"
#include "ranks.h"
#include "support.h"

namespace singa::test {
namespace {

using namespace distributed;

/// A port that is free now.
int FreePort() {
  const Listener listener;
  return std::stoi(listener.address());
}

std::string Joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + ";";
  return all;
}

TEST(Rendezvous, GivesEachTextToAllRanks) {
  for (const int world : {1, 2, 5}) {
    const Place place{"localhost", FreePort()};
    const std::vector<std::string> texts = InProcesses(world, [&](int rank) {
      const Exchange exchange = ExchangeAt(place, "job", rank, world, 20);
      return Joined(exchange("of " + std::to_string(rank))) + Joined(exchange(rank ? "" : "long"));
    });
    std::string want;
    for (int r = 0; r < world; ++r) want += "of " + std::to_string(r) + ";";
    want += "long;" + std::string(static_cast<size_t>(world - 1), ';');
    for (const std::string& text : texts) EXPECT_EQ(text, want);
  }
}

TEST(Rendezvous, MissingRanksAreNamedByAll) {
  const Place place{"127.0.0.1", FreePort()};
  const std::vector<std::string> texts = InProcesses(3, [&](int rank) -> std::string {
    if (rank == 2) return "";
    ExchangeAt(place, "job", rank, 3, 1)("text");
    return "nothing was raised";
  });
  for (int r : {0, 1})
    EXPECT_NE(texts[r].find("rank 2 has not joined the job; rank 0 has waited for 1 s"),
              std::string::npos)
        << texts[r];
}

TEST(Rendezvous, RankZeroIsNamedWhereItIsMissing) {
  const Place place{"127.0.0.1", FreePort()};
  const std::vector<std::string> texts = InProcesses(1, [&](int) -> std::string {
    ExchangeAt(place, "job", 1, 2, 0.3);
    return "nothing was raised";
  });
  EXPECT_NE(texts[0].find("rank 1 has not found rank 0: 127.0.0.1 port"), std::string::npos)
      << texts[0];
  EXPECT_NE(texts[0].find("Connection refused"), std::string::npos) << texts[0];
}

TEST(Rendezvous, ARankThatLeavesIsNamed) {
  const Place place{"127.0.0.1", FreePort()};
  const std::vector<std::string> texts = InProcesses(3, [&](int rank) -> std::string {
    const Exchange exchange = ExchangeAt(place, "job", rank, 3, 20);
    if (rank == 1) return "";
    exchange("text");
    return "nothing was raised";
  });
  for (int r : {0, 2})
    EXPECT_NE(texts[r].find("rank 1 has left the job"), std::string::npos) << texts[r];
}

TEST(Rendezvous, AnotherJobIsNotThisOne) {
  const Place place{"127.0.0.1", FreePort()};
  const std::vector<std::string> texts = InProcesses(3, [&](int rank) -> std::string {
    if (rank < 2) return Joined(ExchangeAt(place, "job", rank, 2, 20)(std::to_string(rank)));
    ExchangeAt(place, "another job", 1, 2, 0.5);
    return "nothing was raised";
  });
  EXPECT_EQ(texts[0], "0;1;");
  EXPECT_EQ(texts[1], "0;1;");
  EXPECT_NE(texts[2].find("has not found rank 0"), std::string::npos) << texts[2];
}

TEST(Rendezvous, APortThatIsTakenIsAnError) {
  const Listener other;
  const int port = std::stoi(other.address());
  try {
    ExchangeAt({"127.0.0.1", port}, "job", 0, 2, 1);
    FAIL() << "nothing was raised";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("port " + std::to_string(port) + ": Address already"),
              std::string::npos)
        << error.what();
  }
}

TEST(Rendezvous, ReadsPlaces) {
  EXPECT_EQ(PlaceOf("node7:80").host, "node7");
  EXPECT_EQ(PlaceOf("node7:80").port, 80);
  EXPECT_EQ(PlaceOf("[fe::1]:65535").host, "fe::1");
  EXPECT_EQ(PlaceOf("[fe::1]:65535").port, 65535);
  for (const char* wrong : {"", "node7", "node7:", ":80", "node7:0", "node7:65536", "a b:80",
                            "node7:8a", "node7:123456"})
    EXPECT_THROW(PlaceOf(wrong), std::invalid_argument) << wrong;
}

// Ranks of one machine find each other at a meeting, and then share memory.
TEST(Rendezvous, RanksJoin) {
  const std::string meeting = "localhost:" + std::to_string(FreePort());
  for (const char* node : {"0", "1", "2"}) {
    setenv("SINGA_NODE_RANKS", node, 1);
    const std::vector<std::string> texts = InProcesses(3, [&](int rank) -> std::string {
      const CommunicatorPtr c = Communicator::JoinAt(meeting, "job", rank, 3, 20);
      const Tensor t = FromValues({2}, {1, static_cast<double>(rank)});
      c->AllReduce({t}, {}, 1);
      const int size = node[0] == '0' ? 3 : node[0] == '2' && rank < 2 ? 2 : 1;
      return Values(t) == std::vector<double>{3, 3} && c->local_size == size ? "right" : "wrong";
    });
    for (const std::string& text : texts) EXPECT_EQ(text, "right");
  }
  unsetenv("SINGA_NODE_RANKS");
}

}  // namespace
}  // namespace singa::test
