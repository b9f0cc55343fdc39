#pragma once

// The ranks of a job, as a rank sees them: which collective each is in, the chunks of data that it
// has handed over, and the error by which the job has failed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/meeting/meeting.h"
#include "distributed/transport/node_links.h"
#include "distributed/transport/node_memory.h"

namespace singa::distributed {

class RankGroup {
 public:
  /// Joins the job `name` and waits for all ranks. `timeout` is the deadline of every wait, in
  /// seconds; `meeting` is how this node reaches the others. Raises std::invalid_argument if ranks
  /// disagree about the size of the world, and std::runtime_error, naming the ranks that are
  /// missing, at the deadline.
  RankGroup(const std::string& name, Nodes nodes, double timeout, Meeting meeting = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return nodes().rank(); }
  int world_size() const { return nodes().world_size(); }
  const Nodes& nodes() const { return memory_.nodes(); }
  /// Buffers, and how many there are.
  const NodeMemory& memory() const { return memory_; }
  /// The connections to other nodes; null if there are none, or if another rank has them.
  NodeLinks* links() const { return links_.get(); }

  /// Shows the other ranks which collective this rank is in, and numbers for the layouts of its
  /// tensors and for the plans that it has refused. `number` counts from 1.
  void Describe(uint64_t number, const std::string& text, uint64_t layouts = 0,
                uint64_t refused = 0);
  /// What Describe begins with for a launch of captured collectives, which happens only if all
  /// ranks are about to make it.
  static constexpr char kLaunch[] = "launch\n";
  struct Comparison {
    bool same_layouts = true;
    bool same_refused = true;
    /// Some ranks are about to launch captured collectives, and others to start one. Then nothing
    /// is moved under this number, and nothing else compared.
    bool mixed = false;
    int last = -1;      ///< the rank that came last, if this one has waited for others
    double waited = 0;  ///< seconds
  };
  /// Waits until all ranks are in collective `number`. Fails if a description differs.
  Comparison CompareDescriptions(uint64_t number, const std::string& where);
  /// To be called after a collective: hands what other nodes still need to the system.
  void Finish();

  uint64_t count(Stage stage) const;
  /// Says that this rank has finished `stage` of the chunks before `count`.
  void Publish(Stage stage, uint64_t count);
  /// Waits until the ranks of this node, or of all nodes, have finished `stage` of the chunks
  /// before `count`. `where` names the collective in errors.
  void AwaitNode(Stage stage, uint64_t count, const std::string& where);
  void AwaitAll(Stage stage, uint64_t count, const std::string& where);
  /// Waits until the partial sums of the node before, or the results of the next node, have come
  /// for the chunks before `count`.
  void AwaitPartial(uint64_t count, const std::string& where);
  void AwaitResult(uint64_t count, const std::string& where);

  /// How waits begin. A thread beside which others compute sleeps after a few microseconds. One
  /// that has nothing else to do tries for longer, since waking up takes time.
  void SetPatience(bool patient) { patient_ = patient; }

  /// Makes all ranks raise `text`; the first one stays. Returns the text that stayed.
  std::string Fail(const std::string& text) noexcept;
  /// Raises std::runtime_error with the text of Fail, if there was one.
  void ThrowIfFailed() const;
  /// Says that this rank makes no further collective, and waits until all ranks have said so:
  /// without a deadline for those that give signs of life. False if one of them has ended or failed
  /// instead. Raises std::runtime_error if one is stopped.
  bool Leave();
  /// Shows the other ranks that this process is alive.
  void Beat() noexcept;
  /// Fails if the job has, if another rank has ended or left, or after the deadline. For those who
  /// have waited `waited` seconds for something else than another rank's state.
  void CheckOthers(const std::string& where, double waited);

 private:
  /// Calls a function for ranks whose state may be the reason why others do not answer.
  using Suspects = std::function<void(const std::function<void(int)>&)>;
  Suspects WayTo(int rank) const;
  Suspects AllOnSide(int node) const;

  RankState& own() const { return memory_.At(rank()); }
  template <class Ready>
  void WaitFor(int rank, const Ready& ready, const Suspects& suspects, const std::string& where);
  [[noreturn]] void Throw(const std::string& text);
  /// Has ranks of this machine killed that give no sign of life, for launchers that would wait for
  /// them: those of MPI send signals that a stopped process does not see.
  void EndSilent() const;
  std::string Problem(int rank, const Suspects& suspects, const std::string& where,
                      double waited) const;
  std::string ProcessOf(int rank) const;
  void AwaitNeighbour(int node, uint64_t count, const std::string& where);
  std::vector<int> AwaitForMessage(uint64_t number) const;
  std::string Disagreement(const std::vector<int>& ranks, uint64_t number,
                           const std::string& where) const;

  double timeout_;
  bool patient_ = false;
  NodeMemory memory_;
  std::unique_ptr<NodeLinks> links_;
};

}  // namespace singa::distributed
