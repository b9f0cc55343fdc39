#include "distributed/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "distributed/process.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr const char* kOp = "Communicator";
constexpr int kHandshake = 2;  // seconds for a connection and its first words
constexpr int kLook = 100;     // milliseconds between two looks at a deadline
constexpr size_t kMostAddresses = 12;

/// The first words of both sides.
struct Hello {
  char magic[16] = "singa nodes 1";
  char secret[40] = {};
  int32_t node = 0;
};

// A child that was forked must not keep connections open: the other side would not see the end of
// its parent. The handler of a fork may only read memory and call close.
std::array<std::atomic<int>, 32> g_open{};  // file + 1

void CloseInChild() {
  for (std::atomic<int>& file : g_open)
    if (const int open = file.exchange(0)) close(open - 1);
}

void Register(int file) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, CloseInChild); });
  for (std::atomic<int>& entry : g_open) {
    int none = 0;
    if (entry.compare_exchange_strong(none, file + 1)) return;
  }
}

void Forget(int file) {
  for (std::atomic<int>& entry : g_open) {
    int open = file + 1;
    if (entry.compare_exchange_strong(open, 0)) return;
  }
}

std::string NewSecret() {
  std::random_device random;
  char text[33];
  std::snprintf(text, sizeof(text), "%08x%08x%08x%08x", random(), random(), random(), random());
  return text;
}

/// A socket that listens to all addresses of this machine, IPv6 where there is one. Port 0: the
/// system chooses one.
Socket Listening(int port) {
  for (const int family : {AF_INET6, AF_INET}) {
    const int file = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) continue;
    Socket made(file);
    const int off = 0, on = 1;
    // A job that is started again takes the port while old connections to it are kept.
    if (port != 0) setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    const in_port_t wanted = htons(static_cast<uint16_t>(port));
    if (family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(any).sin6_port = wanted;
    } else {
      reinterpret_cast<sockaddr_in&>(any).sin_port = wanted;
    }
    const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (bind(file, reinterpret_cast<sockaddr*>(&any), size) == 0 && listen(file, 8) == 0)
      return made;
  }
  const std::string where = port != 0 ? " on port " + std::to_string(port) : "";
  throw std::runtime_error(
      detail::Message(kOp, "cannot listen for connections", where, ": ", std::strerror(errno)));
}

int PortOf(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &size);
  const in_port_t port = address.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return ntohs(port);
}

/// Addresses of an interface, or of all; those of the machine alone come last.
std::vector<std::string> OwnAddresses(const std::string& interface) {
  std::vector<std::string> inner, outer;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = all; each; each = each->ifa_next) {
      if (!each->ifa_addr || each->ifa_addr->sa_family != family || !(each->ifa_flags & IFF_UP))
        continue;
      if (!interface.empty() && interface != each->ifa_name) continue;
      const auto* six = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue;
      char text[NI_MAXHOST];
      const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
      if (getnameinfo(each->ifa_addr, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
        (each->ifa_flags & IFF_LOOPBACK ? inner : outer).emplace_back(text);
    }
  }
  freeifaddrs(all);
  Check(interface.empty() || !inner.empty() || !outer.empty(), kOp,
        "SINGA_INTERFACE: there is no interface ", interface, " with an address");
  outer.insert(outer.end(), inner.begin(), inner.end());
  if (outer.size() > kMostAddresses) outer.resize(kMostAddresses);
  return outer;
}

void Tune(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.file(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Hello MakeHello(const std::string& secret, int node) {
  Hello hello;
  std::strncpy(hello.secret, secret.c_str(), sizeof(hello.secret) - 1);
  hello.node = node;
  return hello;
}

bool Matches(const Hello& got, const Hello& want) {
  return std::memcmp(&got, &want, sizeof(Hello)) == 0;
}

/// Connects to one address, and exchanges the first words. "" if it succeeds, else the reason.
std::string Try(const std::string& host, const std::string& port, const Hello& own,
                const Hello& other, std::optional<Socket>* connected) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
    return "there is no such machine";
  Socket made(-1);
  int error = 0;
  bool reached = false;
  for (const addrinfo* each = found; each && !reached; each = each->ai_next) {
    made = Socket(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    made.SetPatience(kHandshake);
    reached = connect(made.file(), each->ai_addr, each->ai_addrlen) == 0;
    error = errno;
  }
  freeaddrinfo(found);
  if (!reached) return error == EINPROGRESS ? "no answer" : std::strerror(error);
  Hello answer;
  if (!made.Send(&own, sizeof(own), nullptr, 0) || !made.Receive(&answer, sizeof(answer)) ||
      !Matches(answer, other))
    return "something else answers there";
  made.SetPatience(0);
  Tune(made);
  *connected = std::move(made);
  return "";
}

}  // namespace

Socket::Socket(int file) noexcept : file_(file) {
  if (file_ >= 0) Register(file_);
}

Socket::~Socket() {
  if (file_ < 0) return;
  Forget(file_);
  close(file_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

bool Socket::Send(const void* head, size_t head_bytes, const void* data, size_t bytes) {
  std::array<iovec, 2> parts{iovec{const_cast<void*>(head), head_bytes},
                             iovec{const_cast<void*>(data), bytes}};
  size_t first = 0;
  while (first < parts.size()) {
    msghdr message{};
    message.msg_iov = parts.data() + first;
    message.msg_iovlen = parts.size() - first;
    const ssize_t sent = sendmsg(file_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    for (size_t left = static_cast<size_t>(sent); first < parts.size();) {
      const size_t used = std::min(left, parts[first].iov_len);
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + used;
      parts[first].iov_len -= used;
      left -= used;
      if (parts[first].iov_len > 0) break;
      ++first;
    }
  }
  return true;
}

bool Socket::Receive(void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(file_, to, bytes, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void Socket::EndSending() noexcept { shutdown(file_, SHUT_WR); }

void Socket::Break() noexcept { shutdown(file_, SHUT_RDWR); }

void Socket::SetPatience(int seconds) {
  const timeval most{seconds, 0};
  setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  setsockopt(file_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

Listener::Listener() : Listener(0, NewSecret()) {}

Listener::Listener(int port, const std::string& secret)
    : socket_(Listening(port)), secret_(secret) {
  address_ = std::to_string(PortOf(socket_)) + " " + secret_;
  for (const std::string& host : OwnAddresses(EnvironmentValue("SINGA_INTERFACE", kOp)))
    address_ += " " + host;
}

std::optional<Socket> Listener::Accept(int own, int other, uint64_t deadline,
                                       const std::atomic<bool>& stop) {
  int found = 0;
  return Accept(
      own, [other](int node) { return node == other; }, &found, deadline, stop);
}

std::optional<Socket> Listener::Accept(int own, const std::function<bool(int)>& wanted, int* other,
                                       uint64_t deadline, const std::atomic<bool>& stop) {
  const Hello mine = MakeHello(secret_, own);
  while (!stop.load() && SharedClock() < deadline) {
    pollfd ready{socket_.file(), POLLIN, 0};
    if (poll(&ready, 1, kLook) <= 0) continue;
    const int file = accept4(socket_.file(), nullptr, nullptr, SOCK_CLOEXEC);
    if (file < 0) continue;
    Socket made(file);
    made.SetPatience(kHandshake);
    Hello hello;
    if (!made.Receive(&hello, sizeof(hello)) || !Matches(hello, MakeHello(secret_, hello.node)) ||
        !wanted(hello.node) || !made.Send(&mine, sizeof(mine), nullptr, 0))
      continue;
    *other = hello.node;
    made.SetPatience(0);
    Tune(made);
    return made;
  }
  return std::nullopt;
}

std::optional<Socket> Connect(const std::string& address, int own, int other, uint64_t deadline,
                              const std::atomic<bool>& stop, std::string* reason) {
  std::istringstream words(address);
  std::string port, secret;
  words >> port >> secret;
  std::vector<std::string> hosts;
  for (std::string host; words >> host;) hosts.push_back(host);
  const Hello mine = MakeHello(secret, own), theirs = MakeHello(secret, other);
  std::optional<Socket> connected;
  while (!stop.load() && SharedClock() < deadline) {
    reason->clear();
    for (const std::string& host : hosts) {
      const std::string failed = Try(host, port, mine, theirs, &connected);
      if (connected) return connected;
      *reason += (reason->empty() ? "" : "; ") + host + " port " + port + ": " + failed;
      if (stop.load() || SharedClock() > deadline) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kLook));
  }
  return std::nullopt;
}

}  // namespace singa::distributed
