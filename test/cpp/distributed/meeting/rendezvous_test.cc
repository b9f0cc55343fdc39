#include "distributed/meeting/rendezvous.h"

#include <signal.h>

#include "distributed/meeting/listener.h"
#include "distributed/meeting/process.h"
#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

using namespace distributed;

/// A port that is free now.
int FreePort() {
  const Listener listener;
  return std::stoi(listener.address());
}

const std::string kSecret = "a secret of many characters";

Exchange At(const Place& place, int rank, int world, double timeout) {
  return ExchangeAt(place, "job", kSecret, rank, world, timeout);
}

std::string Joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + ";";
  return all;
}

TEST(Rendezvous, GivesEachTextToAllRanks) {
  for (const int world : {1, 2, 5}) {
    const Place place{"localhost", FreePort()};
    const Texts texts = InProcesses(world, [&](int rank) {
      const Exchange exchange = At(place, rank, world, 20);
      return Joined(exchange("of " + std::to_string(rank))) + Joined(exchange(rank ? "" : "long"));
    });
    std::string want;
    for (int r = 0; r < world; ++r) want += "of " + std::to_string(r) + ";";
    want += "long;" + std::string(static_cast<size_t>(world - 1), ';');
    ExpectAll(texts, want);
  }
}

TEST(Rendezvous, MissingRanksAreNamedByAll) {
  const Place place{"127.0.0.1", FreePort()};
  const Texts texts = InProcesses(3, [&](int rank) {
    if (rank != 2) At(place, rank, 3, 1)("text");
  });
  for (int r : {0, 1})
    ExpectPart(texts[r], "rank 2 has not joined the job; rank 0 has waited for 1 s");
}

TEST(Rendezvous, RankZeroIsNamedWhereItIsMissing) {
  const Place place{"127.0.0.1", FreePort()};
  const Texts texts = InProcesses(1, [&](int) { At(place, 1, 2, 0.3); });
  ExpectPart(texts[0], "rank 1 has not found rank 0: 127.0.0.1 port");
  ExpectPart(texts[0], "Connection refused");
}

TEST(Rendezvous, ARankThatLeavesIsNamed) {
  const Place place{"127.0.0.1", FreePort()};
  const Texts texts = InProcesses(3, [&](int rank) {
    const Exchange exchange = At(place, rank, 3, 20);
    if (rank != 1) exchange("text");
  });
  for (int r : {0, 2}) ExpectPart(texts[r], "rank 1 has left the job");
}

TEST(Rendezvous, AnotherJobIsNotThisOne) {
  const Place place{"127.0.0.1", FreePort()};
  const Texts texts = InProcesses(5, [&](int rank) -> std::string {
    if (rank < 2) return Joined(At(place, rank, 2, 20)(std::to_string(rank)));
    const bool other_job = rank == 2, other_world = rank == 3;
    ExchangeAt(place, other_job ? "another job" : "job", rank == 4 ? "" : kSecret, 1,
               other_world ? 3 : 2, 0.5);
    return "nothing was raised";
  });
  EXPECT_EQ(texts[0], "0;1;");
  EXPECT_EQ(texts[1], "0;1;");
  for (int r : {2, 3, 4}) ExpectPart(texts[r], "has not found rank 0");
}

// Rank 0 is stopped for longer than a handshake may take, after the other rank has connected.
TEST(Rendezvous, RankZeroMayBeStopped) {
  const Place place{"127.0.0.1", FreePort()};
  const Texts texts = InProcesses(2, [&](int rank) {
    if (rank == 0) {
      const pid_t zero = getpid();
      const Process self = Process::Current();
      if (fork() == 0) {
        usleep(200'000);
        kill(zero, SIGSTOP);
        usleep(static_cast<useconds_t>(1e6 * (kHandshakeSeconds + 0.5)));
        if (self.Lives()) kill(zero, SIGCONT);
        _exit(0);
      }
    } else {
      usleep(400'000);
    }
    return Joined(At(place, rank, 2, 30)(std::to_string(rank)));
  });
  EXPECT_EQ(texts, (Texts{"0;1;", "0;1;"}));
}

TEST(Rendezvous, ThePortIsClosedWhenAllHaveJoined) {
  const Place place{"127.0.0.1", FreePort()};
  const Texts texts = InProcesses(2, [&](int rank) -> std::string {
    const Exchange exchange = At(place, rank, 2, 20);
    exchange("");
    std::string reason;
    const std::atomic<bool> stop = false;
    const uint64_t soon = SharedClock() + 50'000'000;
    Connect(std::to_string(place.port) + " " + place.host, {}, 1, 0, soon, stop, &reason);
    exchange("");
    return reason;
  });
  for (const std::string& text : texts) ExpectPart(text, "Connection refused");
}

TEST(Rendezvous, WhatIsOpenToTheNetworkNeedsASecret) {
  const Place open{"10.0.0.1", 80};
  CheckSecret(open, kSecret);
  CheckSecret({"localhost", 80}, "");
  CheckSecret({"::1", 80}, "");
  for (const char* secret : {"", "short"}) {
    EXPECT_THROW(CheckSecret(open, secret), std::invalid_argument) << secret;
    EXPECT_THROW(Communicator::JoinAt("example:80", "job", 1, 2, 1, secret), std::invalid_argument);
  }
  for (const char* part :
       {"the meeting at 10.0.0.1:80", "    export SINGA_SECRET=", "    export SINGA_INSECURE=1"})
    EXPECT_ERROR(std::invalid_argument, part, CheckSecret(open, ""));
  setenv("SINGA_INSECURE", "1", 1);
  CheckSecret(open, "");
  EXPECT_THROW(CheckSecret(open, "short"), std::invalid_argument);
  unsetenv("SINGA_INSECURE");
}

TEST(Rendezvous, APortThatIsTakenIsAnError) {
  const Listener other;
  const int port = std::stoi(other.address());
  EXPECT_ERROR(std::runtime_error, "port " + std::to_string(port) + ": Address already",
               At({"127.0.0.1", port}, 0, 2, 1));
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
    const Texts texts = InProcesses(3, [&](int rank) {
      const CommunicatorPtr c = Communicator::JoinAt(meeting, "job", rank, 3, 20);
      const Tensor t = FromValues({2}, {1, static_cast<double>(rank)});
      c->AllReduce({t}, {}, 1);
      const int size = node[0] == '0' ? 3 : node[0] == '2' && rank < 2 ? 2 : 1;
      Require(Values(t) == Vector{3, 3} && c->local_size == size, "sum or size");
    });
    ExpectAll(texts, "right");
  }
  unsetenv("SINGA_NODE_RANKS");
}

}  // namespace
}  // namespace singa::test
