#pragma once

// A connection to a node beside this one, with a thread for each direction. It keeps the states of
// the ranks beyond it up to date in the memory of this node, and those of this node's ranks there.
// It can move chunks of data, too.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/meeting/socket.h"
#include "distributed/transport/node_memory.h"
#include "distributed/transport/transport.h"

namespace singa::distributed {

/// What nodes tell each other.
enum class Topic : uint32_t {
  kJoined,       // a rank, its process
  kDescription,  // of a rank's collective
  kSlot,         // kinds of chunks
  kPartial,
  kResult,
  kReceived,  // how many chunks have come, where another transport moves them
  kBeats,     // nanoseconds since the last sign of life of each rank of a node
  kLeft,      // a rank makes no further collective
  kEnded,     // a rank's process is gone
  kFailure,   // to the node before: an error that is proposed; to the next one: the decided one
  kTopics,
};

struct Message {
  Topic topic = Topic::kTopics;
  int32_t rank = 0;
  uint64_t number = 0;  // of the collective or the chunk
  uint64_t bytes = 0;   // that follow
  uint64_t hash = 0, layouts = 0, refused = 0;
};

/// Something to send. Its bytes lie in the node's memory, or in `text`.
struct Parcel {
  Message message;
  const char* data = nullptr;
  std::string text{};
};

/// A connection to one of the two neighbours.
class Link {
 public:
  /// Opens the connection; returns nothing if that fails, with a reason, or if it shall stop.
  using Open = std::function<std::optional<Socket>(const std::atomic<bool>&, std::string*)>;

  Link(NodeMemory& memory, int node, Open open);
  ~Link();

  /// Opens the connection and starts its work. `next` is the connection at the other side of this
  /// node, or null: what comes from ranks beyond goes on to it.
  void Start(Link* next, Transport& transport, Arrived arrived);
  /// Sends a chunk when it is ready.
  void Send(const Chunk& chunk);
  /// Waits until all that there was to send at the call has been handed to the system, at most so
  /// many seconds.
  void Flush(double seconds);
  /// Sends what is left and ends the connection, which takes at most so many seconds.
  void Close(double seconds) noexcept;

 private:
  struct Told {
    bool joined = false, gone = false;
    uint64_t collective = 0;
  };

  void Receive();
  bool ReceiveOne();
  void TakeText(const Message& message, std::string text);
  void SendAll();
  std::vector<bool> Gone();
  bool SendGone(const std::vector<bool>& gone);
  bool SendNews(bool closing);
  bool SendQueued();
  bool MayGo(const Parcel& parcel) const;
  void Queue(Parcel parcel);
  void Put(const Message& message, const void* data);
  void PassOn(Parcel parcel);
  void EndOfNeighbour();

  NodeMemory& memory_;
  const Nodes& nodes_;
  int node_;  // the neighbour
  bool is_before_;
  Open open_;
  Link* next_ = nullptr;
  Transport* transport_ = nullptr;
  Arrived arrived_;
  std::optional<Socket> socket_;
  std::atomic<bool> stop_ = false, connected_ = false;

  // Of the thread that sends.
  std::vector<Told> told_;  // of each rank of this node
  std::vector<bool> gone_;
  bool told_failure_ = false;
  uint64_t last_beat_ = 0, last_look_ = 0, last_receipt_ = 0, told_received_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Parcel> texts_, data_;
  uint64_t flush_wanted_ = 0, flushed_ = 0;
  bool closing_ = false, sent_all_ = false, received_all_ = false;
  std::thread receiver_, sender_;
};

}  // namespace singa::distributed
