#include "distributed/rendezvous.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "distributed/process.h"
#include "distributed/socket.h"
#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr const char* kOp = "Communicator";
constexpr uint32_t kMostText = 1 << 16;
constexpr int kLastWords = 5;  // seconds that rank 0's error may take to come

/// Ranks of the same job, and of a world of the same size, have the same one.
std::string SecretOf(const std::string& job, int world_size) {
  std::array<char, 33> text{};
  const uint64_t hash = std::hash<std::string>()(job + "\n" + std::to_string(world_size));
  std::snprintf(text.data(), text.size(), "meeting-%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

bool SendText(Socket& socket, const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size());
  return socket.Send(&size, sizeof(size), text.data(), size);
}

std::optional<std::string> ReceiveText(Socket& socket) {
  uint32_t size = 0;
  if (!socket.Receive(&size, sizeof(size)) || size > kMostText) return std::nullopt;
  std::string text(size, '\0');
  if (!socket.Receive(text.data(), size)) return std::nullopt;
  return text;
}

/// The connections of rank 0 to all others, or that of another rank to rank 0.
class Star {
 public:
  Star(const Place& place, const std::string& job, int rank, int world_size, double timeout)
      : rank_(rank),
        world_size_(world_size),
        patience_(static_cast<int>(std::ceil(std::min(timeout, 1e6)))) {
    const uint64_t deadline = SharedClock() + static_cast<uint64_t>(1e9 * std::min(timeout, 1e6));
    const std::string secret = SecretOf(job, world_size);
    if (rank == 0) {
      Gather(place, secret, deadline);
    } else {
      const std::string address = std::to_string(place.port) + " " + secret + " " + place.host;
      std::string reason;
      std::optional<Socket> found = Connect(address, rank, 0, deadline, stop_, &reason);
      Check<std::runtime_error>(found.has_value(), kOp, "rank ", rank,
                                " has not found rank 0: ", reason);
      found->SetPatience(patience_ + kLastWords);
      sockets_.emplace(0, std::move(*found));
    }
  }

  std::vector<std::string> Exchange(const std::string& text) {
    return rank_ == 0 ? Collect(text) : Ask(text);
  }

 private:
  void Gather(const Place& place, const std::string& secret, uint64_t deadline) {
    Listener listener(place.port, secret);
    const auto is_new = [&](int rank) {
      return rank > 0 && rank < world_size_ && !sockets_.contains(rank);
    };
    while (static_cast<int>(sockets_.size()) + 1 < world_size_) {
      int rank = 0;
      std::optional<Socket> found = listener.Accept(0, is_new, &rank, deadline, stop_);
      if (!found) break;
      found->SetPatience(patience_);
      sockets_.emplace(rank, std::move(*found));
    }
    for (int r = 1; r < world_size_; ++r)
      if (!sockets_.contains(r))
        Fail(detail::Message(kOp, "rank ", r, " has not joined the job; rank 0 has waited for ",
                             patience_, " s at ", place.host, ":", place.port));
  }

  std::vector<std::string> Collect(const std::string& text) {
    std::vector<std::string> all{text};
    for (int r = 1; r < world_size_; ++r) {
      std::optional<std::string> other = ReceiveText(sockets_.at(r));
      if (!other)
        Fail(
            detail::Message(kOp, "rank ", r, " has left the job while the ranks found each other"));
      all.push_back(std::move(*other));
    }
    for (auto& [rank, socket] : sockets_) {
      bool sent = SendText(socket, "");
      for (const std::string& each : all) sent = sent && SendText(socket, each);
    }
    return all;
  }

  /// A reply is an error, or an empty text before those of all ranks.
  std::vector<std::string> Ask(const std::string& text) {
    Socket& socket = sockets_.at(0);
    SendText(socket, text);
    std::vector<std::string> all;
    for (int i = -1; i < world_size_; ++i) {
      std::optional<std::string> each = ReceiveText(socket);
      Check<std::runtime_error>(each.has_value(), kOp,
                                "rank 0 has left the job while the ranks found each other");
      if (i >= 0) {
        all.push_back(std::move(*each));
      } else if (!each->empty()) {
        throw std::runtime_error(*each);
      }
    }
    return all;
  }

  [[noreturn]] void Fail(const std::string& error) {
    for (auto& [rank, socket] : sockets_) SendText(socket, error);
    throw std::runtime_error(error);
  }

  int rank_, world_size_, patience_;
  std::atomic<bool> stop_ = false;
  std::map<int, Socket> sockets_;  // by the other side's rank
};

}  // namespace

Place PlaceOf(const std::string& text) {
  Place place;
  const size_t colon = text.rfind(':');
  if (colon != text.npos && colon > 0) {
    place.host = text.substr(0, colon);
    if (place.host.front() == '[' && place.host.back() == ']')
      place.host = place.host.substr(1, place.host.size() - 2);
    const std::string port = text.substr(colon + 1);
    if (!port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == port.npos)
      place.port = std::stoi(port);
  }
  Check(place.port > 0 && place.port < 65536 && place.host.find(' ') == place.host.npos, kOp,
        "SINGA_MEETING must be host:port, got ", text);
  return place;
}

Exchange ExchangeAt(const Place& place, const std::string& job, int rank, int world_size,
                    double timeout) {
  const auto star = std::make_shared<Star>(place, job, rank, world_size, timeout);
  return [star](const std::string& text) { return star->Exchange(text); };
}

}  // namespace singa::distributed
