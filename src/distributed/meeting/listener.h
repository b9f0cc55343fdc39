#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "distributed/meeting/handshake.h"
#include "distributed/meeting/socket.h"

namespace singa::distributed {

/// Waits for connections.
class Listener {
 public:
  /// Listens on a port that the system chooses: at the addresses of the interface SINGA_INTERFACE,
  /// else at those of this machine alone (`inside`), or at all.
  explicit Listener(bool inside = false);
  /// Listens at the addresses that `host` names, on this port. Where none of them is this
  /// machine's, as behind a gateway, at all of this machine's. Raises std::runtime_error if the
  /// port is not free.
  Listener(const std::string& host, int port);

  /// The port, and where others reach it, for Connect.
  const std::string& address() const { return address_; }
  /// The connection of the next process that has proven that it knows `pass`, and whose number
  /// `wanted` takes; `other` gets it. Nothing at the deadline (SharedClock), or when `stop` is set.
  /// Handshakes go on side by side, and from one call to the next one.
  std::optional<Socket> Accept(const Pass& pass, int own, const std::function<bool(int)>& wanted,
                               int* other, uint64_t deadline, const std::atomic<bool>& stop);

 private:
  void TakeNew(const Socket& listening);

  std::vector<Socket> listening_;
  std::list<IncomingHandshake> pending_;  // the oldest first
  std::string address_;
};

/// Connects process `own` to the Listener of process `other`, at the first of the hosts in
/// `address` that answers and proves that it knows `pass`. Nothing at the deadline, or when `stop`
/// is set; then `reason` says what was tried.
std::optional<Socket> Connect(const std::string& address, const Pass& pass, int own, int other,
                              uint64_t deadline, const std::atomic<bool>& stop,
                              std::string* reason);

/// Whether a host, a name or an address, is only reached from its own machine, by its look.
bool IsInside(const std::string& host);

}  // namespace singa::distributed
