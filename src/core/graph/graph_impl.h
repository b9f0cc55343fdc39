#pragma once

// The implementation of Graph: the nodes of a step, the memory that they are bound to, and what
// outlives a replay.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/arena_memory.h"
#include "core/graph/captured_work.h"
#include "core/graph/plan_revision.h"
#include "core/graph/recorded_step.h"
#include "core/hidden.h"
#include "singa/core/graph.h"

namespace singa {

class SINGA_HIDDEN Graph::Impl {
 public:
  using Slot = RecordedStep::Slot;
  using Segment = RecordedStep::Segment;
  using Blocks = std::set<const Block*>;
  /// Four numbers that follow from all bytes of a block.
  using Digest = std::array<uint64_t, 4>;

  explicit Impl(const RecordedStep& step);

  bool Start(const std::vector<Tensor>& inputs);
  bool Restore(const std::vector<Tensor>& inputs) const;
  void Run(int index);
  std::optional<std::vector<Tensor>> RunToTurn(const std::vector<Tensor>& inputs);
  std::vector<Tensor> RunFromTurn(const std::vector<Tensor>& gradients);
  bool TakeBack(int index);
  std::vector<Tensor> Finish();

  int segments() const { return static_cast<int>(segments_.size()); }
  GraphMemory memory() const;
  std::vector<ArenaUse> arena_uses() const;
  std::string ToString() const;

 private:
  /// A result: a view of an input, a tensor whose block is new at each replay, or a tensor that is
  /// the same at each replay.
  struct Output {
    Tensor tensor;
    int input = -1;  ///< index into inputs_
    int fresh = -1;  ///< index into fresh_
  };
  /// A block with the layout that the nodes expect.
  struct Kept {
    BlockPtr block;
    LayoutPtr layout;
  };
  struct Lent {
    Kept kept;
    size_t offset = 0;    ///< in the arena
    long references = 0;  ///< before the host's call
  };
  /// A block that the preparation reads, as it was at that time.
  struct Source {
    Kept kept;
    uint64_t version = 0;
    uint64_t exports = 0;
    Digest digest{};
  };

  std::vector<Slot> TakeNodes(const RecordedStep& step);
  void ReplaceEnds(const RecordedStep& step, Blocks* ends);
  void SortSlots(const std::vector<Slot>& slots, const Blocks& ends);
  void PlanArena();
  void FindTurn();
  void CheckSegment(int index) const;
  void BeginSegment(size_t s);
  void RunNodes(size_t s, size_t begin, size_t end);
  bool IsUnchanged(Source& source) const;
  void CheckUnchanged(const Source& source) const;
  bool Prepare();
  std::vector<bool> DependsOn(Blocks blocks) const;
  void BindArena();
  bool WritesInputs() const;
  void CheckInputs(const std::vector<Tensor>& inputs) const;
  bool SharesWritten(const std::vector<Tensor>& inputs) const;
  std::vector<const void*> Addresses() const;
  void BindEnds(const std::vector<Tensor>& inputs);
  void BindFixed(const std::vector<Tensor>& inputs);
  bool Restore(const Kept& kept) const;

  DevicePtr device_;
  ArenaMemoryPtr arena_;
  const uint64_t revision_ = PlanRevision();
  uint64_t generation_ = 0;  // of the arena, when blocks were bound to it
  std::vector<Node> nodes_;
  size_t turn_ = 0;  // the node at which a replay waits; nodes_.size(): none
  Blocks written_;   // by the nodes
  std::vector<Segment> segments_;
  std::vector<std::vector<Lent>> lent_;  // for each segment
  std::vector<RecordedStep::Draw> draws_;
  std::vector<Tensor> inputs_;  // as the nodes see them
  std::vector<Output> outputs_;
  std::vector<Kept> fresh_;         // blocks of results that are new at each replay
  std::vector<Kept> kept_;          // blocks that outlive a replay, such as parameters
  std::vector<BlockPtr> internal_;  // temporaries of the nodes
  std::vector<Node> preparation_;
  SegmentMemory preparation_memory_;
  std::vector<Source> sources_;
  std::vector<BlockPtr> prepared_;  // results of the preparation that nodes read
  bool has_prepared_ = false;
  std::unique_ptr<CapturedNodes> captured_;  // null if the device cannot capture this step
  /// Memory for inputs_, then for fresh_; empty until something is captured. Captured work keeps
  /// its addresses, but inputs and results have other addresses at each replay. So they are copied
  /// on the device, which costs less than capturing again, or than queueing the nodes.
  std::vector<BlockPtr> fixed_;
  // Of the present replay.
  bool is_started_ = false;
  bool is_at_turn_ = false;
  bool is_fixed_ = false;  // inputs and results lie in fixed_
  std::vector<Tensor> bound_inputs_;
  std::vector<BlockPtr> bound_outputs_;
};

}  // namespace singa
