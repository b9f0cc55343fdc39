#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "singa/core/device.h"
#include "singa/core/export.h"
#include "singa/core/node.h"

namespace singa {

class CapturedNodes;

/// Memory that graphs of one model share: as much as the largest needs, and what they prepare from
/// tensors that live on. One at a time runs.
class SINGA_API Arena {
 public:
  explicit Arena(DevicePtr device);  ///< null: the default one
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// At least so many bytes from now on; what was there before may be gone.
  void Reserve(size_t bytes);
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Changes when the memory moves.
  uint64_t generation() const { return generation_; }
  /// Bytes that preparations of the present graphs have filled.
  size_t prepared_bytes() const;

#ifndef SWIG
  /// Has a graph leave what `preparation` computes for `nodes` in the memory where another one
  /// leaves the same. Each fills it for itself, when it finds that a source has changed.
  void SharePrepared(std::vector<Node>* preparation, std::vector<Node>* nodes);
#endif

 private:
  DevicePtr device_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  uint64_t generation_ = 0;
  // By how it is computed, in terms of plans and blocks: whoever holds the block holds those.
  std::unordered_map<std::string, std::weak_ptr<Block>> prepared_;
  std::vector<std::weak_ptr<const Plan>> preparing_;  // no two of them the same
};
using ArenaPtr = std::shared_ptr<Arena>;

/// Where the temporaries of some nodes lie in an arena.
struct SegmentMemory {
  struct Place {
    BlockPtr block;
    size_t offset;
  };
  std::vector<Place> blocks;
  std::vector<size_t> workspaces;  ///< offset for each node
  size_t bytes = 0;                ///< of the arena
  size_t peak = 0;                 ///< most bytes that are ever live: no plan needs less
  int in_place = 0;                ///< outputs that take over an input's memory
};

/// What one thread executes on a device, kept back and run together, with the memory of temporaries
/// planned in advance. Everything that looks at the elements meanwhile gets them, because what was
/// kept back runs first; such a recording cannot be replayed, and `obstacle` says why.
///
/// Segments end where the host has something to do in between (Pause ... Resume): an optimizer, for
/// one, whose learning rate changes from step to step.
class SINGA_API Recording {
 public:
  struct Slot {
    BlockPtr block;
    LayoutPtr layout;       ///< when it was first used
    int input = -1;         ///< which of the step's inputs it is
    bool made = false;      ///< it had no memory before its first use, a write
    bool internal = false;  ///< nobody else held it when it ran
    bool lent = false;      ///< ... but the host, for the length of a call after that
  };
  struct Segment {
    size_t nodes = 0;       ///< end of its nodes
    size_t draws = 0;       ///< end of its random draws
    std::vector<int> lent;  ///< slots whose contents the host sees when the segment has run
    SegmentMemory memory;
  };
  struct Draw {
    uint64_t count, seed, offset;
    uint64_t number;  ///< of the process
  };

  Recording(DevicePtr device, ArenaPtr arena);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// From now on this thread's executions on the device are kept back. `inputs` are dense and the
  /// only tensors of their blocks. Raises std::logic_error when the thread is recording already.
  void Start(const std::vector<Tensor>& inputs);
  /// Ends a segment: runs it. Until Resume this thread executes directly. `lent` are temporaries
  /// that the host reads or changes meanwhile and then lets go of.
  void Pause(const std::vector<Tensor>& lent);
  void Resume();
  /// Runs the rest and stops. `outputs` are what the step returns.
  void Finish(const std::vector<Tensor>& outputs);
  /// Stops without running what is left.
  void Abandon() noexcept;
  /// For Device::EnableGraph: what was recorded goes on waiting while this thread executes
  /// directly, until Listen(true).
  void Listen(bool listen);
  /// For Device::RunGraph: runs everything in order, again what ran in an earlier call. Layouts are
  /// those of the first time; random numbers are drawn anew.
  void RunAll();
  /// Why it cannot be replayed; empty: it can.
  const std::string& obstacle() const { return obstacle_; }
  void SetObstacle(const std::string& obstacle);

#ifndef SWIG
  /// The one that this thread records into; null where it executes.
  static Recording* Current();
  const DevicePtr& device() const { return device_; }
  void Append(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, const Scalars& scalars, const SpecRef& spec);
  void AddDraw(const Draw& draw) { draws_.push_back(draw); }
  /// The scalars of the node that was recorded last are those in `live` at each replay.
  void FollowScalars(std::shared_ptr<const Scalars> live) { nodes_.back().live = std::move(live); }
  /// Somebody asks for the address of a block that is waiting: runs what there is.
  void RunForHost();
  /// A waiting block is to lie in another layout: records that. False where that is no matter of
  /// recording: the block has memory.
  bool RecordLayout(Block* block, const LayoutPtr& layout, const char* reason);

  /// Nodes with the same results, for each segment, instead of those of a finished recording.
  /// `preparation` comes before them, depends on tensors that live on alone, and is run again only
  /// when one of these has changed. Blocks that are new here are temporaries.
  void Replace(std::vector<Node> preparation, std::vector<std::vector<Node>> segments);
  /// Other nodes with the same results, for those of a segment that is about to run. Blocks that
  /// are new in them are temporaries. Several run in the order in which they were added.
  using Rewrite = std::vector<Node> (*)(const Recording& recording, std::vector<Node> nodes);
  void AddRewrite(Rewrite rewrite) { rewrites_.push_back(rewrite); }

  const std::vector<Node>& preparation() const { return preparation_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Draw>& draws() const { return draws_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  /// Somebody else than the recording holds the slot's block.
  bool IsHeld(int slot) const {
    return slots_[static_cast<size_t>(slot)].block.use_count() > References(slot);
  }
  /// -1 for a block that no node uses.
  int SlotOf(const Block* block) const;
  const ArenaPtr& arena() const { return arena_; }
#endif

 private:
  int UseSlot(const Tensor& t, bool write);
  int Enter(const Slot& slot);
  void Mention(const std::vector<Node>& nodes, long change);
  void RewriteWaiting();
  void RunWaiting(const std::vector<Tensor>& lent);
  void StopWaiting() noexcept;
  void RunAgain();
  long References(int slot) const;

  DevicePtr device_;
  ArenaPtr arena_;
  std::vector<Node> preparation_;
  std::vector<Node> nodes_;
  std::vector<Segment> segments_;
  std::vector<Slot> slots_;
  std::unordered_map<const Block*, int> slot_of_;
  std::vector<long> mentions_;  // in nodes, for each slot
  std::vector<Draw> draws_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::string obstacle_;
  std::vector<Rewrite> rewrites_;
  size_t ran_ = 0;                               // nodes that have run
  bool runs_again_ = false;                      // RunAll was called before
  std::vector<std::vector<LayoutPtr>> layouts_;  // of inputs and outputs, for each node that ran
  bool active_ = false;
};
using RecordingPtr = std::shared_ptr<Recording>;

/// Bytes of a graph, by what they are for.
struct GraphMemory {
  uint64_t arena = 0;     ///< temporaries and workspaces
  uint64_t peak = 0;      ///< most bytes of temporaries that are live at once
  uint64_t unshared = 0;  ///< of all temporaries, if none shared memory
  uint64_t inputs = 0;
  uint64_t outputs = 0;     ///< allocated for each replay
  uint64_t persistent = 0;  ///< parameters and other tensors that live on
  uint64_t prepared = 0;    ///< what was computed once from these
  uint64_t fixed = 0;       ///< where captured work finds inputs and leaves results
  uint64_t plans = 0;       ///< an estimate: generated code and tables
  uint64_t nodes = 0;
  uint64_t in_place = 0;  ///< outputs that take over an input's memory
  uint64_t merged = 0;    ///< operations that were recorded, less the nodes
  uint64_t branches = 0;  ///< of captured work: what may run side by side; 0: nothing is captured
  uint64_t longest = 0;   ///< nodes that run one after the other, whatever runs beside them
};

/// One step that was recorded twice with the same result, replayed without whoever recorded it:
///
///     graph.Start(inputs);
///     for (int i = 0; i < graph.segments(); ++i) { graph.Run(i); host call i; }
///     outputs = graph.Finish();
///
/// Random draws are made anew; all else that is no tensor is as it was recorded. On a device that
/// can capture what it is asked for, whole stretches of nodes become one launch.
class SINGA_API Graph {
 public:
  /// What differs between two recordings of one step, in words; empty: nothing does.
  static std::string Difference(const Recording& first, const Recording& second);
  /// Takes over `recording`, whose inputs and outputs get other memory at each replay.
  explicit Graph(const RecordingPtr& recording);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Binds inputs (of the recorded shapes and types; made contiguous if they are not) and makes new
  /// outputs. False when a tensor that lives on no longer lies as recorded and cannot be moved:
  /// record again.
  bool Start(const std::vector<Tensor>& inputs);
  /// Run, TakeBack and Finish raise std::invalid_argument without Start.
  void Run(int segment);
  /// False when the host has kept a lent tensor beyond its call; it then has memory of its own.
  bool TakeBack(int segment);
  std::vector<Tensor> Finish();
  /// A step in which the host has no part: Start, Run of every segment, Finish. Nothing where Start
  /// returns false.
  std::optional<std::vector<Tensor>> Replay(const std::vector<Tensor>& inputs);

  int segments() const { return static_cast<int>(segments_.size()); }
  GraphMemory memory() const;
  /// The plan: a line for each node.
  std::string ToString() const;

 private:
  /// A result: the tensor itself, a view of an input, or one whose block is new for each replay.
  struct Output {
    Tensor tensor;
    int input = -1;
    int fresh = -1;  // index into fresh_
  };
  /// A block with the layout that the nodes expect it in.
  struct Kept {
    BlockPtr block;
    LayoutPtr layout;
  };
  struct Lent {
    Kept kept;
    size_t offset = 0;    // in the arena
    long references = 0;  // before the host's call
  };
  /// A block that the preparation reads, as it was then.
  struct Source {
    Kept kept;
    uint64_t version = 0;
  };
  void PlanArena(const std::vector<BlockPtr>& internal);
  void CheckSegment(int index) const;
  bool IsPrepared() const;
  bool Prepare();
  void BindArena();
  bool WritesInputs() const;
  std::vector<const void*> Addresses() const;
  void BindEnds(const std::vector<Tensor>& inputs);
  void BindFixed(const std::vector<Tensor>& inputs);
  bool Restore(const Kept& kept) const;

  DevicePtr device_;
  ArenaPtr arena_;
  uint64_t generation_ = 0;
  std::vector<Node> nodes_;
  std::vector<Recording::Segment> segments_;
  std::vector<std::vector<Lent>> lent_;  // for each segment
  std::vector<Recording::Draw> draws_;
  std::vector<Tensor> inputs_;  // as the nodes see them
  std::vector<Output> outputs_;
  std::vector<Kept> fresh_;  // blocks that results are written to
  std::vector<Kept> kept_;   // blocks that live on
  std::vector<Node> preparation_;
  SegmentMemory preparation_memory_;
  std::vector<Source> sources_;
  std::vector<BlockPtr> prepared_;  // what the preparation leaves for the nodes
  bool has_prepared_ = false;
  size_t unshared_ = 0;
  std::unique_ptr<CapturedNodes> captured_;  // null where nothing can be captured
  /// For inputs, then for fresh_; empty until something is captured. Captured work keeps the
  /// addresses that it was given, and inputs and results have others at each replay. They are
  /// copied, in the device's memory: capturing anew costs more than queueing the nodes does.
  std::vector<BlockPtr> fixed_;
  // Of the present replay.
  bool is_started_ = false;
  bool is_fixed_ = false;  // inputs and results lie in fixed_
  std::vector<Tensor> bound_inputs_;
  std::vector<BlockPtr> bound_outputs_;
};

}  // namespace singa
