#include "distributed/meeting/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <sstream>
#include <thread>

#include "distributed/meeting/process.h"
#include "support.h"

namespace singa::test {
namespace {

using namespace distributed;

const Pass kPass{"a secret of many characters", "nodes of a job"};
constexpr size_t kOpening = 56, kAnswer = 64, kProof = 32;  // bytes of the messages

uint64_t After(double seconds) { return SharedClock() + static_cast<uint64_t>(1e9 * seconds); }

int PortOf(const Listener& listener) { return std::stoi(listener.address()); }

std::string Here(int port) { return std::to_string(port) + " 127.0.0.1"; }

std::optional<Socket> AcceptOne(Listener& listener, double seconds = 20,
                                const std::atomic<bool>& stop = false) {
  int other = 0;
  return listener.Accept(
      kPass, 0, [](int node) { return node == 1; }, &other, After(seconds), stop);
}

/// Connects without any handshake.
Socket Stranger(int port) {
  Socket made(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(made.file(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return made;
}

/// Listens without any handshake.
class Pretender {
 public:
  Pretender() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(socket_.file(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(socket_.file(), 4), 0);
    getsockname(socket_.file(), reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
  }
  int port() const { return port_; }
  Socket Accept() const { return Socket(accept(socket_.file(), nullptr, nullptr)); }

 private:
  Socket socket_;
  int port_ = 0;
};

std::string Read(Socket& socket, size_t bytes) {
  std::string text(bytes, '\0');
  return socket.Receive(text.data(), bytes) ? text : "";
}

TEST(Listener, ConnectsThoseThatKnowTheSecret) {
  Listener listener;
  const std::atomic<bool> stop = false;
  std::string text(5, ' ');
  std::thread other([&] {
    const Pass wrong_secret{"b" + kPass.secret.substr(1), kPass.purpose};
    const Pass wrong_purpose{kPass.secret, "nodes of another job"};
    for (const Pass& pass : {wrong_secret, wrong_purpose, Pass{}}) {
      std::string reason;
      EXPECT_FALSE(Connect(listener.address(), pass, 1, 0, After(0.5), stop, &reason));
      ExpectPart(reason, "has another secret, or is another job");
    }
    std::string reason;  // process 7 does not listen there
    EXPECT_FALSE(Connect(listener.address(), kPass, 1, 7, After(0.5), stop, &reason));
    ExpectPart(reason, "something else answers there");
    // The number 2 is not wanted.
    EXPECT_FALSE(Connect(listener.address(), kPass, 2, 0, After(0.5), stop, &reason));
    ExpectPart(reason, "another process has the same rank");
    std::optional<Socket> socket =
        Connect(listener.address(), kPass, 1, 0, After(20), stop, &reason);
    ASSERT_TRUE(socket) << reason;
    EXPECT_TRUE(socket->Send("he", 2, "llo", 3));
  });
  std::optional<Socket> socket = AcceptOne(listener);
  ASSERT_TRUE(socket);
  EXPECT_TRUE(socket->Receive(text.data(), text.size()));
  EXPECT_EQ(text, "hello");
  other.join();
  EXPECT_TRUE(socket->HasEnded());
  EXPECT_FALSE(socket->Receive(text.data(), 1));
}

// One after the other, they would take minutes.
TEST(Listener, StrangersHoldNobodyUp) {
  Listener listener(true);
  std::vector<Socket> strangers;
  for (int i = 0; i < 50; ++i) {
    for (const std::string& text : {std::string(), std::string("singa meeting 2\0", 16),
                                    std::string(kOpening + kProof, 'x'), std::string(5000, '\0')}) {
      strangers.push_back(Stranger(PortOf(listener)));
      strangers.back().Send(text.data(), text.size(), nullptr, 0);
    }
  }
  std::atomic<bool> stop = false;
  std::thread slow([&] {  // a byte each 20 ms, from 50 more
    std::vector<Socket> slowly;
    for (int i = 0; i < 50; ++i) slowly.push_back(Stranger(PortOf(listener)));
    while (!stop.load()) {
      for (Socket& each : slowly) each.Send("s", 1, nullptr, 0);
      usleep(20'000);
    }
  });
  std::string reason;
  std::thread connects([&] {
    EXPECT_TRUE(Connect(Here(PortOf(listener)), kPass, 1, 0, After(20), stop, &reason)) << reason;
  });
  EXPECT_TRUE(AcceptOne(listener));
  connects.join();
  stop = true;
  slow.join();
}

// A relay between the two sides learns nothing that serves another connection.
TEST(Listener, AProofServesOnce) {
  Listener listener(true);
  const std::atomic<bool> stop = false;
  std::string said;
  const int port = PortOf(listener);
  const Pretender pretender;
  std::thread between([&] {
    Socket one = pretender.Accept(), other = Stranger(port);
    const std::string opening = Read(one, kOpening);
    other.Send(opening.data(), opening.size(), nullptr, 0);
    const std::string answer = Read(other, kAnswer);
    one.Send(answer.data(), answer.size(), nullptr, 0);
    const std::string proof = Read(one, kProof);
    other.Send(proof.data(), proof.size(), nullptr, 0);
    const std::string welcome = Read(other, 1);
    one.Send(welcome.data(), 1, nullptr, 0);
    said = opening + proof;
  });
  std::string reason;
  std::thread connects([&] {
    EXPECT_TRUE(Connect(Here(pretender.port()), kPass, 1, 0, After(20), stop, &reason)) << reason;
  });
  EXPECT_TRUE(AcceptOne(listener));
  connects.join();
  between.join();
  ASSERT_EQ(said.size(), kOpening + kProof);
  EXPECT_EQ(said.find(kPass.secret), said.npos);
  Socket again = Stranger(port);
  again.Send(said.data(), said.size(), nullptr, 0);
  EXPECT_FALSE(AcceptOne(listener, 0.3));
  EXPECT_EQ(Read(again, kAnswer).size(), kAnswer);
  EXPECT_EQ(Read(again, 1), "");  // and no welcome
}

TEST(Listener, WhoCannotProveItselfGetsNoProof) {
  const Pretender pretender;
  std::string more = "nothing was read";
  std::atomic<bool> stop = false;
  std::thread pretends([&] {
    Socket one = pretender.Accept();
    const std::string opening = Read(one, kOpening), answer(kAnswer, 'x');
    one.Send(answer.data(), answer.size(), nullptr, 0);
    stop = true;
    more = Read(one, 1);
  });
  std::string reason;
  EXPECT_FALSE(Connect(Here(pretender.port()), kPass, 1, 0, After(20), stop, &reason));
  ExpectPart(reason, "has another secret");
  pretends.join();
  EXPECT_EQ(more, "");
}

TEST(Listener, AConnectionThatWasGivenUpIsForgotten) {
  Listener listener(true);
  const std::atomic<bool> stop = false;
  std::string reason;
  // Nobody answers yet, as where this process is stopped.
  EXPECT_FALSE(Connect(Here(PortOf(listener)), kPass, 1, 0, After(0.2), stop, &reason));
  ExpectPart(reason, "it does not answer");
  std::thread connects([&] {
    std::optional<Socket> socket =
        Connect(Here(PortOf(listener)), kPass, 1, 0, After(20), stop, &reason);
    ASSERT_TRUE(socket) << reason;
    socket->Send("2", 1, nullptr, 0);
  });
  std::optional<Socket> socket = AcceptOne(listener);
  ASSERT_TRUE(socket);
  EXPECT_EQ(Read(*socket, 1), "2");
  connects.join();
}

TEST(Listener, InsideStaysInside) {
  std::istringstream words(Listener().address());
  std::string port, host;
  words >> port >> host;  // the first one is of an interface to the outside, if there is one
  for (const char* inside : {"127.0.0.1", "localhost", "::1"}) EXPECT_TRUE(IsInside(inside));
  for (const char* outside : {"0.0.0.0", "10.0.0.1", "::", "fe80::1", "example"})
    EXPECT_FALSE(IsInside(outside));
  if (IsInside(host)) GTEST_SKIP() << "this machine has no network";
  const std::atomic<bool> stop = false;
  std::string reason;
  const int free = PortOf(Listener(true));
  const Listener unnamed(true), named("localhost", free);
  for (const Listener* inside : {&unnamed, &named}) {
    const std::string outside = std::to_string(PortOf(*inside)) + " " + host;
    EXPECT_FALSE(Connect(outside, kPass, 1, 0, After(0.05), stop, &reason));
    ExpectPart(reason, "Connection refused");
    Stranger(PortOf(*inside));
  }
  // An address of this machine is the only one that listens.
  const Listener outer(host, std::stoi(port));
  EXPECT_FALSE(Connect(Here(std::stoi(port)), kPass, 1, 0, After(0.05), stop, &reason));
  ExpectPart(reason, "Connection refused");
}

TEST(Listener, WaitsEndAtTheDeadlineAndWhenTheyShallStop) {
  Listener listener;
  std::atomic<bool> stop = false;
  EXPECT_FALSE(AcceptOne(listener, 0.05));
  std::string address, reason;
  {
    Listener gone;
    address = gone.address();
  }
  EXPECT_FALSE(Connect(address, kPass, 1, 0, After(0.05), stop, &reason));
  ExpectPart(reason, "Connection refused");
  stop = true;
  EXPECT_FALSE(AcceptOne(listener, 100, stop));
  EXPECT_FALSE(Connect(listener.address(), kPass, 1, 0, After(100), stop, &reason));
}

TEST(Socket, BreakEndsWaits) {
  Listener listener;
  const std::atomic<bool> stop = false;
  std::string reason;
  std::optional<Socket> one, other;
  std::thread connects(
      [&] { one = Connect(listener.address(), kPass, 1, 0, After(20), stop, &reason); });
  other = AcceptOne(listener);
  connects.join();
  ASSERT_TRUE(one && other) << reason;
  char byte = 0;
  std::thread waits([&] { EXPECT_FALSE(one->Receive(&byte, 1)); });
  one->Break();
  waits.join();
}

}  // namespace
}  // namespace singa::test
