#include "distributed/meeting/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "distributed/meeting/process.h"

namespace singa::distributed {
namespace {

constexpr std::array<char, 16> kMagic = {"singa meeting 2"};
constexpr char kWelcome = 'w', kRefused = 'r';

/// The first message. It is a prefix of IncomingHandshake::Received.
struct Opening {
  std::array<char, 16> magic = kMagic;
  int32_t number = 0, wanted = 0;
  Digest nonce{};
};

struct Answer {
  Digest nonce{}, proof{};
};

uint64_t After(double seconds) { return SharedClock() + static_cast<uint64_t>(1e9 * seconds); }

Digest Prove(const Pass& pass, const char* side, int connecting, int listening,
             const Digest& connecting_nonce, const Digest& listening_nonce) {
  std::string text = side;
  for (const int32_t number : {connecting, listening})
    text.append(reinterpret_cast<const char*>(&number), sizeof(number));
  for (const Digest& nonce : {connecting_nonce, listening_nonce})
    text.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  return HmacSha256(pass.secret, text + pass.purpose);
}

constexpr const char *kConnects = "connects", *kListens = "listens_";  // of one length

bool SendNow(const Socket& socket, const void* data, size_t bytes) {
  return send(socket.file(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes);
}

}  // namespace

IncomingHandshake::IncomingHandshake(Socket socket)
    : socket_(std::move(socket)), deadline_(After(kHandshakeSeconds)) {}

IncomingHandshake::State IncomingHandshake::Advance(const Pass& pass, int own) {
  static_assert(offsetof(Received, proof) == sizeof(Opening));
  while (bytes_ < sizeof(Received)) {
    const size_t part = bytes_ < sizeof(Opening) ? sizeof(Opening) : sizeof(Received);
    char* to = reinterpret_cast<char*>(&received_) + bytes_;
    const ssize_t got = recv(socket_.file(), to, part - bytes_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::kWaiting;
    if (got <= 0) return State::kFailed;
    bytes_ += static_cast<size_t>(got);
    if (bytes_ != sizeof(Opening)) continue;
    if (received_.magic != kMagic || received_.wanted != own) return State::kFailed;
    nonce_ = RandomBytes();
    const Answer answer{nonce_,
                        Prove(pass, kListens, received_.number, own, received_.nonce, nonce_)};
    if (!SendNow(socket_, &answer, sizeof(answer))) return State::kFailed;
  }
  const Digest want = Prove(pass, kConnects, received_.number, own, received_.nonce, nonce_);
  return SameDigest(received_.proof, want) ? State::kProven : State::kFailed;
}

Socket IncomingHandshake::Welcome() {
  SendNow(socket_, &kWelcome, 1);
  return std::move(socket_);
}

void IncomingHandshake::Refuse() { SendNow(socket_, &kRefused, 1); }

std::string ConnectingHandshake(Socket& socket, const Pass& pass, int own, int other,
                                uint64_t deadline, const std::atomic<bool>& stop) {
  const uint64_t soon = std::min(deadline, After(kHandshakeSeconds));
  Opening opening{.number = own, .wanted = other, .nonce = RandomBytes()};
  Answer answer;
  if (!SendNow(socket, &opening, sizeof(opening)) ||
      !socket.ReceiveBy(&answer, sizeof(answer), soon, stop))
    return SharedClock() < soon ? "something else answers there" : "it does not answer";
  const Digest want = Prove(pass, kListens, own, other, opening.nonce, answer.nonce);
  if (!SameDigest(answer.proof, want))
    return "what answers there has another secret, or is another job or one of other ranks";
  const Digest proof = Prove(pass, kConnects, own, other, opening.nonce, answer.nonce);
  char verdict = 0;
  if (!SendNow(socket, &proof, sizeof(proof)) ||
      !socket.ReceiveBy(&verdict, sizeof(verdict), deadline, stop))
    return "the connection has ended";
  return verdict == kWelcome ? "" : "another process has the same rank";
}

}  // namespace singa::distributed
