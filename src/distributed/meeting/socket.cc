#include "distributed/meeting/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "distributed/meeting/process.h"

namespace singa::distributed {
namespace {

constexpr int kLook = 100;          // milliseconds between two looks at a deadline
constexpr size_t kMostOpen = 8192;  // connections

// A child that was forked must not keep connections open: the other side would not see the end of
// its parent. The handler of a fork may only read memory and call close.
std::array<std::atomic<int>, kMostOpen> g_open{};  // file + 1

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

bool Socket::ReceiveBy(void* data, size_t bytes, uint64_t deadline, const std::atomic<bool>& stop) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(file_, to, bytes, MSG_DONTWAIT);
    if (got > 0) {
      to += got;
      bytes -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) return false;
    if (stop.load() || SharedClock() >= deadline) return false;
    pollfd ready{file_, POLLIN, 0};
    poll(&ready, 1, kLook);
  }
  return true;
}

bool Socket::HasEnded() const {
  pollfd state{file_, POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0;
}

void Socket::EndSending() noexcept { shutdown(file_, SHUT_WR); }

void Socket::Break() noexcept { shutdown(file_, SHUT_RDWR); }

void Socket::SetPatience(int seconds) {
  const timeval most{seconds, 0};
  setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  setsockopt(file_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

void Socket::SendAtOnce() {
  const int on = 1;
  setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace singa::distributed
