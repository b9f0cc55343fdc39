#pragma once

// What the ranks of a node share: a state of each rank of the job, buffers for data, and the error
// by which the job has failed. The states of ranks of other nodes are copies, which the node's
// connections keep up to date (link.h).

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "distributed/meeting/nodes.h"
#include "distributed/meeting/process.h"
#include "distributed/meeting/shared_segment.h"

namespace singa::distributed {

/// A collective hands data over in chunks. Each rank counts, over its whole life, the chunks of
/// which it has written its part, combined its share, and taken the result. All ranks run the same
/// collectives, so equal counts mean the same chunk.
enum class Stage : int { kWritten = 0, kCombined = 1, kTaken = 2 };

/// A rank's state. Its own process writes it, or the connection to its node.
struct RankState {
  /// Most bytes of a description.
  static constexpr size_t kText = size_t{16} << 10;
  struct Description {
    uint64_t hash, layouts, refused;
    uint32_t length;
    char text[kText];
  };
  alignas(64) std::atomic<uint32_t> event;  // changes with everything that another rank waits for
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> joined;      // 1: its process is being written, 2: it is there
  std::atomic<uint32_t> left;        // it makes no further collective
  std::atomic<uint32_t> ended;       // of another node: its process is gone
  std::atomic<uint64_t> collective;  // number of the last description
  // Of another node's first rank, kCombined counts the chunks that have come from that node.
  std::array<std::atomic<uint64_t>, 3> counts;
  alignas(64) std::atomic<uint64_t> beat;  // SharedClock
  Process process;
  std::array<Description, 2> descriptions;  // of collectives with even and odd numbers

  std::atomic<uint64_t>& count(Stage stage) { return counts[static_cast<size_t>(stage)]; }
  /// Seconds since its last sign of life.
  double Silent() const { return static_cast<double>(SharedClock() - beat.load()) * 1e-9; }
};

class NodeMemory {
 public:
  /// Opens or makes the memory of this node. Raises errors of SharedSegment.
  NodeMemory(const std::string& job, Nodes nodes);

  const Nodes& nodes() const { return nodes_; }
  RankState& At(int rank) const;
  /// Whether the process of a rank that has joined is there.
  bool Lives(int rank) const;

  /// Chunks that are under way at once, and the most bytes of a rank's part of a chunk, of its
  /// result or of its partial sum. On one node all buffers of one kind stay in a cache together.
  /// Over several nodes more and smaller chunks are under way, two for each hop.
  uint64_t buffers() const { return buffers_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  /// The same for chunks that all nodes get, of which a node has those of all ranks.
  uint64_t shared_buffers() const { return shared_buffers_; }
  /// Where `rank` writes its part of chunk `number`; the sum over the ranks up to this node; the
  /// result.
  char* Slot(int rank, uint64_t number) const;
  char* Partial(uint64_t number) const { return Own(local_ranks() + 1, number); }
  char* Result(uint64_t number) const { return Own(local_ranks(), number); }

  /// Counts this process as one that has the memory. The last one of the node removes its name.
  void Joined();
  void Unlink() noexcept { segment_.Unlink(); }
  /// Raises std::invalid_argument if another rank has said another number.
  void CheckWorldSize();

  /// Wakes the ranks of this node that wait for `rank`.
  void Wake(RankState& rank) const noexcept;
  /// Waits for a change of `rank` since its `event`, some milliseconds at most.
  void AwaitChange(RankState& rank, uint32_t event) const noexcept;
  /// Wakes the threads of the node's connections, which look for what there is to send.
  void Post() const noexcept;
  uint32_t posted() const;
  /// Waits for a Post since `posted`, so many nanoseconds at most.
  void AwaitPost(uint32_t posted, int64_t most = 20'000'000) const noexcept;

  // The error of the job. The first node decides which one of several it is.

  enum class Failure : uint32_t { kNone, kWriting, kProposed, kDecided };
  Failure failure() const;
  /// The text of a failure that is proposed or decided.
  std::string failure_text() const;
  /// A rank of this or a later node has failed; the first text stays.
  void Propose(const std::string& text) const noexcept;
  /// The first node has decided.
  void Decide(const std::string& text) const noexcept;
  /// Proposes `text` and waits for the decision; without one it stays this node's error. Returns
  /// what was decided.
  std::string Fail(const std::string& text) const noexcept;

 private:
  struct Shared;
  Shared& shared() const { return *static_cast<Shared*>(segment_.data()); }
  bool Write(Failure from, const std::string& text, Failure to) const noexcept;
  void WakeAll() const noexcept;
  size_t local_ranks() const {
    return static_cast<size_t>(nodes_.end(nodes_.own()) - nodes_.first(nodes_.own()));
  }
  /// Bytes of the buffers of this node's ranks, of its results and of its partial sums.
  size_t OwnBytes() const;
  char* Own(size_t kind, uint64_t number) const;

  Nodes nodes_;
  uint64_t buffers_, shared_buffers_;
  size_t chunk_bytes_;
  SharedSegment segment_;
};

}  // namespace singa::distributed
