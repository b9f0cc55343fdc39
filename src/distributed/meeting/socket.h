#pragma once

// TCP connections.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace singa::distributed {

/// A connection. A child that is forked does not keep it open.
class Socket {
 public:
  explicit Socket(int file) noexcept;
  ~Socket();
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;

  int file() const { return file_; }
  /// Sends both, or receives. False if the connection has ended before.
  bool Send(const void* head, size_t head_bytes, const void* data, size_t bytes);
  bool Receive(void* data, size_t bytes);
  /// Receives until `deadline` (SharedClock). False also then, or when `stop` is set.
  bool ReceiveBy(void* data, size_t bytes, uint64_t deadline, const std::atomic<bool>& stop);
  /// Whether the other side has ended the connection. What it has sent before does not count.
  bool HasEnded() const;
  /// Tells the other side that nothing more is sent.
  void EndSending() noexcept;
  /// Ends the connection. Another thread's Send or Receive returns.
  void Break() noexcept;
  /// Bounds each wait of Send, Receive and connect, in seconds; 0: none.
  void SetPatience(int seconds);
  /// Does not hold back what is sent until there is more.
  void SendAtOnce();

 private:
  int file_;
};

}  // namespace singa::distributed
