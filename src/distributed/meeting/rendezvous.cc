#include "distributed/meeting/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "distributed/meeting/listener.h"
#include "distributed/meeting/process.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr const char* kOp = "Communicator";
constexpr uint32_t kMostText = 1 << 16;
constexpr size_t kShortestSecret = 16;  // characters
constexpr int kLastWords = 5;           // seconds that rank 0's error may take to come

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
  Star(const Place& place, const Pass& pass, int rank, int world_size, double timeout)
      : rank_(rank),
        world_size_(world_size),
        patience_(static_cast<int>(std::ceil(std::min(timeout, 1e6)))) {
    const uint64_t deadline = SharedClock() + static_cast<uint64_t>(1e9 * std::min(timeout, 1e6));
    if (rank == 0) {
      Gather(place, pass, deadline);
    } else {
      const std::string address = std::to_string(place.port) + " " + place.host;
      std::string reason;
      std::optional<Socket> found = Connect(address, pass, rank, 0, deadline, stop_, &reason);
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
  void Gather(const Place& place, const Pass& pass, uint64_t deadline) {
    Listener listener(place.host, place.port);
    const auto is_new = [&](int rank) {
      // A rank whose connection was lost comes again.
      const auto before = sockets_.find(rank);
      if (before != sockets_.end() && before->second.HasEnded()) sockets_.erase(before);
      return rank > 0 && rank < world_size_ && !sockets_.contains(rank);
    };
    while (static_cast<int>(sockets_.size()) + 1 < world_size_) {
      int rank = 0;
      std::optional<Socket> found = listener.Accept(pass, 0, is_new, &rank, deadline, stop_);
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

void CheckSecret(const Place& place, const std::string& secret) {
  Check(secret.empty() || secret.size() >= kShortestSecret, kOp, "SINGA_SECRET must have ",
        kShortestSecret, " characters or more, got ", secret.size());
  if (!secret.empty() || IsInside(place.host) || EnvironmentValue("SINGA_INSECURE", kOp) == "1")
    return;
  throw std::invalid_argument(detail::Message(
      kOp, "other machines can reach the meeting at ", place.host, ":", place.port,
      ", so the ranks need a secret to know each other by. Give all ranks the same one:\n"
      "    export SINGA_SECRET=...  # python -c 'import secrets; print(secrets.token_hex())' makes "
      "one\nor, on a network that you trust:\n    export SINGA_INSECURE=1"));
}

Exchange ExchangeAt(const Place& place, const std::string& job, const std::string& secret, int rank,
                    int world_size, double timeout) {
  CheckSecret(place, secret);
  const Pass pass{secret, "meeting of " + std::to_string(world_size) + " ranks\n" + job};
  const auto star = std::make_shared<Star>(place, pass, rank, world_size, timeout);
  return [star](const std::string& text) { return star->Exchange(text); };
}

}  // namespace singa::distributed
