#include "distributed/meeting/listener.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "distributed/meeting/process.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr const char* kOp = "Communicator";
constexpr int kConnecting = 2;  // seconds for a connection, before its handshake
constexpr int kLook = 100;      // milliseconds between two looks at a deadline
constexpr size_t kMostAddresses = 12;
/// Handshakes at a time. Then the oldest one is given up: an honest one takes no more than two
/// ways there and back.
constexpr size_t kMostPending = 512;
constexpr size_t kNewAtOnce = 64;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The addresses that a host names; null if there are none.
Addresses Resolve(const std::string& host, const std::string& port, int flags = 0) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICSERV | flags;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  return {failed ? nullptr : found, freeaddrinfo};
}

std::string NumberOf(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
}

/// A socket that listens at an address; nothing, with errno, if that fails. One for IPv6's
/// unspecified address takes connections of IPv4, too.
std::optional<Socket> ListenAt(const addrinfo& at) {
  const int file = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return std::nullopt;
  Socket made(file);
  const int on = 1;
  const auto* six = reinterpret_cast<const sockaddr_in6*>(at.ai_addr);
  const int only = at.ai_family == AF_INET6 && !IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
  // A job that is started again takes the port while old connections to it are kept.
  setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (at.ai_family == AF_INET6) setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  if (bind(file, at.ai_addr, at.ai_addrlen) != 0 || listen(file, SOMAXCONN) != 0)
    return std::nullopt;
  return made;
}

int PortOf(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

[[noreturn]] void FailToListen(int port) {
  const std::string where = port != 0 ? " on port " + std::to_string(port) : "";
  throw std::runtime_error(
      detail::Message(kOp, "cannot listen for connections", where, ": ", std::strerror(errno)));
}

/// Sockets that listen at these addresses on one port; 0: the system chooses it. An address that is
/// not this machine's is left out.
std::vector<Socket> ListenAtAll(const std::vector<std::string>& hosts, int port) {
  std::vector<Socket> made;
  for (const std::string& host : hosts) {
    const int at = made.empty() ? port : PortOf(made[0]);
    const Addresses found = Resolve(host, std::to_string(at), AI_NUMERICHOST);
    if (!found) continue;
    if (std::optional<Socket> one = ListenAt(*found)) {
      made.push_back(std::move(*one));
    } else if (errno == EADDRINUSE && port != 0) {
      FailToListen(port);
    }
  }
  return made;
}

/// The same at all addresses of this machine, those of IPv6 where there are some.
std::vector<Socket> ListenEverywhere(int port) {
  for (const char* any : {"::", "0.0.0.0"}) {
    std::vector<Socket> made = ListenAtAll({any}, port);
    if (!made.empty()) return made;
  }
  FailToListen(port);
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
      (each->ifa_flags & IFF_LOOPBACK ? inner : outer).push_back(NumberOf(each->ifa_addr));
    }
  }
  freeifaddrs(all);
  Check(interface.empty() || !inner.empty() || !outer.empty(), kOp,
        "SINGA_INTERFACE: there is no interface ", interface, " with an address");
  outer.insert(outer.end(), inner.begin(), inner.end());
  if (outer.size() > kMostAddresses) outer.resize(kMostAddresses);
  return outer;
}

/// Connects to one address, and proves that it is process `own`. "" if it succeeds, else the
/// reason.
std::string Try(const std::string& host, const std::string& port, const Pass& pass, int own,
                int other, uint64_t deadline, const std::atomic<bool>& stop,
                std::optional<Socket>* connected) {
  const Addresses found = Resolve(host, port);
  if (!found) return "there is no such machine";
  Socket made(-1);
  int error = 0;
  bool reached = false;
  for (const addrinfo* each = found.get(); each && !reached; each = each->ai_next) {
    made = Socket(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    made.SetPatience(kConnecting);
    reached = connect(made.file(), each->ai_addr, each->ai_addrlen) == 0;
    error = errno;
  }
  if (!reached) return error == EINPROGRESS ? "no answer" : std::strerror(error);
  const std::string reason = ConnectingHandshake(made, pass, own, other, deadline, stop);
  if (!reason.empty()) return reason;
  made.SetPatience(0);
  made.SendAtOnce();
  *connected = std::move(made);
  return "";
}

}  // namespace

bool IsInside(const std::string& host) {
  if (host == "localhost") return true;
  const Addresses found = Resolve(host, "0", AI_NUMERICHOST);
  return found && IsLoopback(found->ai_addr);
}

Listener::Listener(bool inside) {
  const std::string interface = EnvironmentValue("SINGA_INTERFACE", kOp);
  std::vector<std::string> hosts;
  if (inside) hosts = {"127.0.0.1", "::1"};
  if (!interface.empty()) hosts = OwnAddresses(interface);
  if (!hosts.empty()) listening_ = ListenAtAll(hosts, 0);
  if (listening_.empty()) {
    listening_ = ListenEverywhere(0);
    hosts = OwnAddresses("");
  }
  address_ = std::to_string(PortOf(listening_[0]));
  for (const std::string& host : hosts) address_ += " " + host;
}

Listener::Listener(const std::string& host, int port) {
  std::vector<std::string> hosts;
  const Addresses found = Resolve(host, std::to_string(port));
  for (const addrinfo* each = found.get(); each; each = each->ai_next)
    // A name that means this machine to itself, such as Debian's 127.0.1.1, has another address
    // elsewhere.
    if (IsInside(host) || !IsLoopback(each->ai_addr)) hosts.push_back(NumberOf(each->ai_addr));
  listening_ = ListenAtAll(hosts, port);
  if (listening_.empty()) listening_ = ListenEverywhere(port);
  address_ = std::to_string(port) + " " + host;
}

void Listener::TakeNew(const Socket& listening) {
  for (size_t i = 0; i < kNewAtOnce; ++i) {
    const int file = accept4(listening.file(), nullptr, nullptr, SOCK_CLOEXEC);
    if (file < 0 && (errno == EMFILE || errno == ENFILE) && !pending_.empty()) {
      pending_.pop_front();
      continue;
    }
    if (file < 0) return;
    pending_.emplace_back(Socket(file));
    if (pending_.size() > kMostPending) pending_.pop_front();
  }
}

std::optional<Socket> Listener::Accept(const Pass& pass, int own,
                                       const std::function<bool(int)>& wanted, int* other,
                                       uint64_t deadline, const std::atomic<bool>& stop) {
  while (!stop.load() && SharedClock() < deadline) {
    for (auto it = pending_.begin(); it != pending_.end();) {
      // What has come is read before the limit counts: this process may have been stopped.
      const IncomingHandshake::State state = it->Advance(pass, own);
      if (state == IncomingHandshake::State::kWaiting && SharedClock() < it->deadline()) {
        ++it;
        continue;
      }
      const auto done = it++;
      if (state != IncomingHandshake::State::kProven) {
        pending_.erase(done);
      } else if (!wanted(done->number())) {
        done->Refuse();
        pending_.erase(done);
      } else {
        *other = done->number();
        Socket made = done->Welcome();
        pending_.erase(done);
        made.SendAtOnce();
        return made;
      }
    }
    std::vector<pollfd> files;
    for (const Socket& each : listening_) files.push_back({each.file(), POLLIN, 0});
    for (const IncomingHandshake& each : pending_) files.push_back({each.file(), POLLIN, 0});
    poll(files.data(), files.size(), kLook);
    for (size_t i = 0; i < listening_.size(); ++i)
      if (files[i].revents != 0) TakeNew(listening_[i]);
  }
  return std::nullopt;
}

std::optional<Socket> Connect(const std::string& address, const Pass& pass, int own, int other,
                              uint64_t deadline, const std::atomic<bool>& stop,
                              std::string* reason) {
  std::istringstream words(address);
  std::string port;
  words >> port;
  std::vector<std::string> hosts;
  for (std::string host; words >> host;) hosts.push_back(host);
  std::optional<Socket> connected;
  std::vector<std::string> reasons;  // each once: the last one may say less than one before
  while (!stop.load() && SharedClock() < deadline) {
    for (const std::string& host : hosts) {
      const std::string failed = Try(host, port, pass, own, other, deadline, stop, &connected);
      if (connected) return connected;
      const std::string text = host + " port " + port + ": " + failed;
      if (std::ranges::find(reasons, text) == reasons.end()) reasons.push_back(text);
      if (stop.load() || SharedClock() > deadline) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kLook));
  }
  reason->clear();
  for (const std::string& text : reasons) *reason += (reason->empty() ? "" : "; ") + text;
  return std::nullopt;
}

}  // namespace singa::distributed
