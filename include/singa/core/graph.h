#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "singa/core/device.h"
#include "singa/core/export.h"
#include "singa/core/tensor.h"

namespace singa {

class ArenaMemory;
class RecordedStep;

/// Memory that the graphs of one model share. It is as large as the largest graph needs, so one
/// graph at a time may run in it.
class SINGA_API Arena {
 public:
  explicit Arena(DevicePtr device);  ///< null: the default device
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Makes the arena at least `bytes` large. Its contents are lost if it grows.
  void Reserve(size_t bytes);
  size_t bytes() const;
  /// Bytes that the present graphs have computed from parameters. They lie outside of the arena,
  /// and those that several graphs share count once.
  size_t prepared_bytes() const;

  /// The implementation, in src/core/graph.
  const std::shared_ptr<ArenaMemory>& memory() const { return memory_; }

 private:
  std::shared_ptr<ArenaMemory> memory_;
};
using ArenaPtr = std::shared_ptr<Arena>;

/// Records what one thread executes on a device. Operations wait until the end of a segment and
/// then run together, with temporaries in planned memory.
///
/// Reading the elements of a waiting result runs all waiting operations first. Such a recording
/// cannot be replayed, and `obstacle` says why.
///
/// A segment ends where the host has work to do between operations (Pause, Resume). An optimizer
/// with code of the user is an example.
class SINGA_API Recording {
 public:
  /// Null: the default device, and an arena of its own.
  Recording(DevicePtr device, ArenaPtr arena);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Starts to record this thread's executions on the device. Each of `inputs` is dense and the
  /// only tensor of its block. Raises std::logic_error if the thread is recording already.
  void Start(const std::vector<Tensor>& inputs);
  /// Ends a segment and runs it. This thread then executes directly until Resume. In between, the
  /// host may read and change the temporaries in `lent`. It has to release them before Resume.
  /// Without `run`, the segment is only planned, and runs in RunPlanned, which has to come first.
  void Pause(const std::vector<Tensor>& lent, bool run = true);
  void Resume();
  /// Appends the place at which a replay waits for gradients of `results`, between forward and
  /// backward (Graph::RunToTurn). Returns these gradients: new tensors of the same shapes and
  /// types, which are 0 where the recording itself runs.
  std::vector<Tensor> Turn(const std::vector<Tensor>& results);
  /// Runs the last segment and stops recording. `outputs` are the results of the step. Without
  /// `run`, the segment is only planned, and its results have no elements until RunPlanned.
  void Finish(const std::vector<Tensor>& outputs, bool run = true);
  void RunPlanned();
  /// What a later recording can be compared with, without the memory of any tensor.
  std::shared_ptr<Recording> Outline() const;
  /// Whether the step draws from the device's generator.
  bool draws() const;
  /// Stops recording and drops the operations that have not run.
  void Abandon() noexcept;
  /// Why the step cannot be replayed; empty if it can.
  const std::string& obstacle() const;
  /// The first obstacle that is set stays.
  void SetObstacle(const std::string& obstacle);
  /// What the host has read in the step although the step has not computed it: inputs, parameters
  /// and other tensors. A replay repeats the step only for the same elements of these.
  std::vector<Tensor> host_reads() const;
  /// Forgets all reads but the first `count`. For what a replay asks anew, such as the number of
  /// updates that a device has made.
  void KeepHostReads(size_t count);

  /// The implementation, in src/core/graph.
  RecordedStep& step() const { return *step_; }

 private:
  explicit Recording(std::unique_ptr<RecordedStep> step);

  std::unique_ptr<RecordedStep> step_;
};
using RecordingPtr = std::shared_ptr<Recording>;

/// Bytes of a graph by purpose, and other numbers about it.
struct GraphMemory {
  uint64_t arena = 0;     ///< temporaries and workspaces
  uint64_t peak = 0;      ///< largest sum of temporaries that are live at once
  uint64_t unshared = 0;  ///< sum of all temporaries
  uint64_t inputs = 0;
  uint64_t outputs = 0;     ///< allocated at each replay
  uint64_t persistent = 0;  ///< parameters and other tensors that outlive a step
  uint64_t prepared = 0;    ///< computed from these once, not at each replay
  uint64_t fixed = 0;       ///< copies of inputs and outputs at addresses that captured work keeps
  uint64_t plans = 0;       ///< an estimate: generated code and tables
  uint64_t nodes = 0;       ///< how many operations run
  uint64_t in_place = 0;    ///< how many outputs take over the memory of an input
  uint64_t merged = 0;      ///< how many recorded operations became part of others
  uint64_t branches = 0;    ///< side by side in captured work; 0: nothing is captured
  uint64_t longest = 0;     ///< nodes on the longest path, which run one after the other
};

/// Memory of the arena that a result or a workspace has for a part of the step.
struct ArenaUse {
  std::string op;     ///< the operation that computes the result, or needs the workspace
  std::string layer;  ///< in which it runs
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int first = 0;  ///< number of the operation
  int last = 0;   ///< number of the last operation that uses it
  bool workspace = false;
};

/// Replays a step that was recorded twice with the same result, without running the code that
/// recorded it:
///
///     graph.Start(inputs);
///     for (int i = 0; i < graph.segments(); ++i) { graph.Run(i); host call i; }
///     outputs = graph.Finish();
///
/// Random numbers are drawn anew; other numbers are those that were recorded. A device that can
/// capture work queues many nodes by one launch.
class SINGA_API Graph {
 public:
  /// The first difference between two recordings of one step, in words; empty if there is none.
  static std::string Difference(const Recording& first, const Recording& second);
  /// Inputs and outputs of `recording` get other memory at each replay.
  explicit Graph(const RecordingPtr& recording);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Binds inputs, which have the recorded shapes and types, and allocates outputs. Inputs that do
  /// not lie as recorded, and views, are copied. Returns false if the step has to be recorded
  /// again: a parameter has another layout than recorded and cannot be moved back, a plan has been
  /// refused since (dispatch/spot_check.h), the step writes an input that would have to be copied,
  /// or what it writes is shared by two inputs or with a parameter.
  bool Start(const std::vector<Tensor>& inputs);
  /// Moves parameters to their recorded layouts, as Start does. Returns false if one cannot be
  /// moved, or if Start would copy an input or return false: the step can then not be recorded as
  /// it was.
  bool Restore(const std::vector<Tensor>& inputs);
  /// Run, TakeBack and Finish raise std::invalid_argument without Start.
  void Run(int segment);
  /// Ends the host's use of the tensors that `segment` lends. Returns false if the host still holds
  /// one of them; that one then has memory of its own.
  bool TakeBack(int segment);
  std::vector<Tensor> Finish();
  /// Start, Run of each segment and Finish, for a step without host calls. Returns nothing if Start
  /// returns false.
  std::optional<std::vector<Tensor>> Replay(const std::vector<Tensor>& inputs);
  /// For a step of one segment with a turn: Start, then the operations before the turn. Returns
  /// copies of the turn's results; nothing if Start returns false. No other graph of the arena may
  /// run before RunFromTurn. A new RunToTurn gives up one that waits.
  std::optional<std::vector<Tensor>> RunToTurn(const std::vector<Tensor>& inputs);
  /// The operations behind the turn, with these gradients of its results, and Finish. A gradient
  /// that they do not read may be an empty tensor. Raises std::invalid_argument without RunToTurn,
  /// and for other shapes or types.
  std::vector<Tensor> RunFromTurn(const std::vector<Tensor>& gradients);

  int segments() const;
  GraphMemory memory() const;
  /// What lies where in the arena, in the order of the operations.
  std::vector<ArenaUse> arena_uses() const;
  /// The operations and where their arguments lie, one line for each node.
  std::string ToString() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace singa
