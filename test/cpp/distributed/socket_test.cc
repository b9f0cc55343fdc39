#include "distributed/socket.h"

#include <thread>

#include "distributed/process.h"
#include "support.h"

namespace singa::test {
namespace {

using distributed::Connect;
using distributed::Listener;
using distributed::SharedClock;
using distributed::Socket;

uint64_t After(double seconds) { return SharedClock() + static_cast<uint64_t>(1e9 * seconds); }

TEST(Socket, ConnectsNodesThatKnowTheSecret) {
  Listener listener;
  std::atomic<bool> stop = false;
  std::string reason, text(5, ' ');
  std::thread other([&] {
    std::string wrong = listener.address();
    wrong[wrong.find(' ') + 1] ^= 1;  // of the secret
    std::string ignored;
    EXPECT_FALSE(Connect(wrong, 1, 0, After(0.3), stop, &ignored));
    EXPECT_NE(ignored.find("something else answers there"), std::string::npos) << ignored;
    std::optional<Socket> socket = Connect(listener.address(), 1, 0, After(20), stop, &reason);
    ASSERT_TRUE(socket);
    EXPECT_TRUE(socket->Send("he", 2, "llo", 3));
  });
  std::optional<Socket> socket = listener.Accept(0, 1, After(20), stop);
  ASSERT_TRUE(socket) << reason;
  EXPECT_TRUE(socket->Receive(text.data(), text.size()));
  EXPECT_EQ(text, "hello");
  other.join();
  EXPECT_FALSE(socket->Receive(text.data(), 1));  // the other side is gone
}

TEST(Socket, WaitsEndAtTheDeadlineAndWhenTheyShallStop) {
  Listener listener;
  std::atomic<bool> stop = false;
  EXPECT_FALSE(listener.Accept(0, 1, After(0.05), stop));
  std::string address, reason;
  {
    Listener gone;
    address = gone.address();
  }
  EXPECT_FALSE(Connect(address, 1, 0, After(0.05), stop, &reason));
  EXPECT_NE(reason.find("Connection refused"), std::string::npos) << reason;
  stop = true;
  EXPECT_FALSE(listener.Accept(0, 1, After(100), stop));
  EXPECT_FALSE(Connect(listener.address(), 1, 0, After(100), stop, &reason));
}

TEST(Socket, BreakEndsWaits) {
  Listener listener;
  std::atomic<bool> stop = false;
  std::string reason;
  std::optional<Socket> one, other;
  std::thread connects([&] { one = Connect(listener.address(), 1, 0, After(20), stop, &reason); });
  other = listener.Accept(0, 1, After(20), stop);
  connects.join();
  ASSERT_TRUE(one && other);
  char byte = 0;
  std::thread waits([&] { EXPECT_FALSE(one->Receive(&byte, 1)); });
  one->Break();
  waits.join();
}

}  // namespace
}  // namespace singa::test
