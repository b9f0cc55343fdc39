#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/graph/arena_memory.h"
#include "core/memory/memory_planner.h"
#include "singa/core/device.h"
#include "singa/core/node.h"

namespace singa {

/// When the nodes of a segment are rewritten.
enum class PassPhase {
  kSegment,  ///< before the segment runs for the first time
  kGraph,    ///< when a Graph is made of the whole recording; the recording itself stays as it is
};

/// The implementation of Recording: the operations of one step and the blocks that they use.
class RecordedStep {
 public:
  /// A block that nodes use.
  struct Slot {
    BlockPtr block;
    LayoutPtr layout;       ///< of the block before its first use
    int input = -1;         ///< index among the step's inputs; -1: not an input
    bool made = false;      ///< the step writes it first; it had no memory before
    bool written = false;   ///< the step writes it
    bool internal = false;  ///< a temporary: nothing but nodes held it when its segment ran
    bool lent = false;      ///< a temporary that the host uses after its segment
  };
  /// Nodes that run together. They begin where those of the segment before end.
  struct Segment {
    size_t nodes = 0;       ///< end of its nodes
    size_t draws = 0;       ///< end of its random draws
    std::vector<int> lent;  ///< slots that the host uses after the segment
    SegmentMemory memory;
  };
  /// Positions that were taken from the random sequence.
  struct Draw {
    uint64_t count, seed, offset;
    uint64_t number;  ///< of the draw within the process
  };
  /// Returns nodes with the same results for those of one segment. Blocks that the step does not
  /// know are temporaries.
  using Rewriter =
      std::function<std::vector<Node>(PassPhase, const RecordedStep&, std::vector<Node>)>;

  /// Null: the default device, and an arena of its own.
  RecordedStep(DevicePtr device, ArenaMemoryPtr arena);
  ~RecordedStep();
  RecordedStep(const RecordedStep&) = delete;
  RecordedStep& operator=(const RecordedStep&) = delete;

  // See Recording.
  void Start(const std::vector<Tensor>& inputs);
  void Pause(const std::vector<Tensor>& lent, bool run);
  void Resume();
  std::vector<Tensor> Turn(const std::vector<Tensor>& results);
  void Finish(const std::vector<Tensor>& outputs, bool run);
  void RunPlanned();
  void Abandon() noexcept;
  const std::string& obstacle() const { return obstacle_; }
  void SetObstacle(const std::string& obstacle);

  /// See Recording::Outline. Its blocks have no memory.
  std::unique_ptr<RecordedStep> Outline() const;
  /// Whether a block of this step, or of the one of which it is the outline, is `other`.
  bool IsBlock(const BlockPtr& own, const BlockPtr& other) const;
  bool is_outline() const { return !originals_.empty(); }

  // See Device::EnableGraph and RunGraph.
  /// False: this thread executes directly, and what is recorded goes on waiting. True: this thread
  /// records again.
  void Listen(bool listen);
  /// Runs all nodes in order, including those that have run, in the layouts of the first time.
  void RunAll();

  // What executing code calls.
  /// The step that this thread records into; null if it executes.
  static RecordedStep* Current();
  /// SetObstacle of the step that this thread records on `device`, if there is one.
  static void SetObstacleOf(const Device& device, const char* obstacle);
  void Append(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, const Scalars& scalars, const SpecRef& spec);
  void AddDraw(const Draw& draw) { draws_.push_back(draw); }
  /// A replay reads the scalars of the last node from `live`.
  void FollowScalars(std::shared_ptr<const Scalars> live) { nodes_.back().live = std::move(live); }
  /// Runs the waiting nodes, because the host needs the address of a block that they use.
  void RunForHost();
  /// Notes that the host reads `t` now. Returns true if the step has not written it, so that its
  /// elements are there without running the waiting nodes.
  bool ReadByHost(const Tensor& t);
  void KeepHostReads(size_t count);  // see Recording
  /// Records that a waiting block moves to another layout. Returns false if the block has memory;
  /// the caller then moves it at once.
  bool RecordLayout(Block* block, const LayoutPtr& layout, const char* reason);

  // What passes and Graph call.
  /// To be called before the recording starts.
  void SetRewriter(Rewriter rewriter) { rewriter_ = std::move(rewriter); }
  /// Nodes [begin, end), which are those of one segment, as a Graph runs them.
  std::vector<Node> NodesForGraph(size_t begin, size_t end) const;
  const DevicePtr& device() const { return device_; }
  const ArenaMemoryPtr& arena() const { return arena_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Draw>& draws() const { return draws_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const std::vector<Tensor>& host_reads() const { return host_reads_; }
  /// Whether something besides the recording holds the slot's block.
  bool IsHeld(int slot) const {
    return slots_[static_cast<size_t>(slot)].block.use_count() > References(slot);
  }
  /// -1 for a block that no node uses.
  int SlotOf(const Block* block) const;

 private:
  int UseSlot(const Tensor& t, bool write);
  int Enter(const Slot& slot);
  void Mention(const std::vector<Node>& nodes, long change);
  void RewriteWaiting();
  void PlanWaiting(const std::vector<Tensor>& lent);
  void RunWaiting(const std::vector<Tensor>& lent);
  void StopWaiting() noexcept;
  void RunAgain();
  long References(int slot) const;

  DevicePtr device_;
  ArenaMemoryPtr arena_;
  std::vector<Node> nodes_;
  std::vector<Segment> segments_;
  std::vector<Slot> slots_;
  std::unordered_map<const Block*, int> slot_of_;
  std::vector<long> mentions_;  // for each slot: how many arguments of nodes hold its block
  std::vector<Draw> draws_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> host_reads_;
  std::string obstacle_;
  Rewriter rewriter_;
  std::unordered_map<const Block*, std::weak_ptr<Block>> originals_;  // of an outline
  size_t ran_ = 0;                                                    // nodes that have run
  bool runs_again_ = false;                                           // RunAll was called before
  std::vector<std::vector<LayoutPtr>> layouts_;  // of inputs and outputs, for each node that ran
  bool active_ = false;
};

/// The plan of the node at which a replay waits: it reads the results, and writes their gradients.
const PlanPtr& TurnPlan();

/// The slot of a block that a pass has made: memory of the arena.
RecordedStep::Slot TemporarySlot(const Tensor& t);

}  // namespace singa
