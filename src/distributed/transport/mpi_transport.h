#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "distributed/meeting/messages.h"
#include "distributed/transport/transport.h"

namespace singa::distributed {

/// Moves chunks by messages of MPI, from a thread of its own, which receives each one where it is
/// wanted. The thread calls MPI only while chunks are on their way, and never after the job has
/// failed: such calls may wait for ever, or end the process.
class MpiTransport final : public Transport {
 public:
  MpiTransport(NodeMemory& memory, std::unique_ptr<Messages> messages, Arrived arrived);
  ~MpiTransport() override;

  void Send(int node, const Chunk& chunk) override;
  void Expect(int node, const Chunk& chunk) override;
  void Flush(double seconds) override;
  void Close(double seconds) noexcept override;
  bool Owes(int node) override;
  uint64_t received(int node) override;
  void Acknowledge(int node, uint64_t count) override;

 private:
  struct Incoming {
    Chunk chunk;
    bool here = false;
  };
  /// A neighbour.
  struct Side {
    int node = 0, rank = 0;
    std::deque<Chunk> to_send{};
    std::deque<Incoming> expected{};  // in the order in which they are taken
    size_t receiving = 0;             // of them MPI has so many
    size_t sending = 0;
    uint64_t sent = 0, acknowledged = 0, received = 0;
  };
  /// What MPI works at.
  struct Started {
    Side* side = nullptr;
    Incoming* incoming = nullptr;  // null: it is sent
    Chunk chunk;
  };
  /// Whether the thread may still use this object. It may never come back from a call of MPI.
  struct Gate {
    std::mutex mutex;
    bool closed = false;
  };

  Side& At(int node) { return sides_[node < memory_.nodes().own() ? 0 : 1]; }
  bool HasToSend(const Side& side) const;
  template <class Call>
  void Ask(Gate& gate, const Call& call);
  void Run(Gate& gate);
  bool StartAll(Gate& gate);
  bool TakeFinished(Gate& gate);
  bool IsIdle();
  void ReportError(const std::string& text);

  NodeMemory& memory_;
  std::unique_ptr<Messages> messages_;
  Arrived arrived_;
  std::map<Messages::Id, Started> started_;  // of the thread
  Messages::Id next_id_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Side, 2> sides_;  // the node before, the next one
  bool stop_ = false, ended_ = false;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::thread thread_;
};

}  // namespace singa::distributed
