#pragma once

// TCP connections between nodes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
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
  /// Tells the other side that nothing more is sent.
  void EndSending() noexcept;
  /// Ends the connection. Another thread's Send or Receive returns.
  void Break() noexcept;
  /// Bounds each wait of Send, Receive and connect, in seconds; 0: none.
  void SetPatience(int seconds);

 private:
  int file_;
};

/// Waits for connections, on a port that the system chooses and with a new secret, or on those
/// that are given. Raises std::runtime_error if the port is not free.
class Listener {
 public:
  Listener();
  Listener(int port, const std::string& secret);
  /// The port, a secret, and this machine's addresses: those of the interface SINGA_INTERFACE, or
  /// all. For Connect.
  const std::string& address() const { return address_; }
  /// The connection of node `other`, which must know the secret. Nothing at the deadline
  /// (SharedClock), or when `stop` is set.
  std::optional<Socket> Accept(int own, int other, uint64_t deadline,
                               const std::atomic<bool>& stop);
  /// The same for the next node that `wanted` takes; `other` gets its number.
  std::optional<Socket> Accept(int own, const std::function<bool(int)>& wanted, int* other,
                               uint64_t deadline, const std::atomic<bool>& stop);

 private:
  Socket socket_;
  std::string secret_, address_;
};

/// Connects node `own` to the Listener of node `other`, at the first of its addresses, or names of
/// machines, that answers. Nothing at the deadline, or when `stop` is set; then `reason` says what
/// was tried.
std::optional<Socket> Connect(const std::string& address, int own, int other, uint64_t deadline,
                              const std::atomic<bool>& stop, std::string* reason);

}  // namespace singa::distributed
