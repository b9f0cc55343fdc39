#pragma once

// How the two sides of a new connection prove to each other that they belong to the same job.
//
//     connecting  ->  its number and a nonce
//     listening   ->  a nonce and its proof
//     connecting  ->  its proof
//     listening   ->  one byte: welcome, or not
//
// A proof is the HMAC-SHA256 of the side, the purpose, both numbers and both nonces, with the
// secret as the key. So the secret never leaves a process, a proof serves one connection, and who
// does not know the secret gets no further than the second line. Nothing after it is protected.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "distributed/meeting/hmac.h"
#include "distributed/meeting/socket.h"

namespace singa::distributed {

/// What both sides of a connection have to know.
struct Pass {
  std::string secret{};
  std::string purpose{};  ///< names the job and what the connection is for
};

/// Seconds after which a side that has proven nothing is given up.
inline constexpr double kHandshakeSeconds = 5;

/// The side that was connected to. It never waits, so that many go on side by side.
class IncomingHandshake {
 public:
  enum class State { kWaiting, kProven, kFailed };

  explicit IncomingHandshake(Socket socket);
  /// Reads what has come, at most what the handshake needs, and replies as process `own`.
  State Advance(const Pass& pass, int own);
  /// The other side's number. Before kProven it is only a claim.
  int number() const { return received_.number; }
  int file() const { return socket_.file(); }
  /// When to give it up (SharedClock).
  uint64_t deadline() const { return deadline_; }
  /// After kProven: tells the other side that it is welcome, and gives the connection; or that its
  /// number is not wanted.
  Socket Welcome();
  void Refuse();

 private:
  struct Received {
    std::array<char, 16> magic;
    int32_t number = 0, wanted = 0;  // of the connecting side, and of the one that it looks for
    Digest nonce, proof;
  };

  Socket socket_;
  uint64_t deadline_;
  Received received_{};
  size_t bytes_ = 0;  // of it
  Digest nonce_{};
};

/// The side that connects, as `own`, to a socket that is taken for `other`. Until that has proven
/// itself, for kHandshakeSeconds at most; then until `deadline`, since a process that was stopped
/// may go on. "" if it succeeds, else the reason.
std::string ConnectingHandshake(Socket& socket, const Pass& pass, int own, int other,
                                uint64_t deadline, const std::atomic<bool>& stop);

}  // namespace singa::distributed
