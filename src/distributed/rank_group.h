#pragma once

// The ranks of one machine and what they share: for each rank its state, a message that describes
// the collective it is in, and a slot for data; and the error by which the job has failed.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/process.h"
#include "distributed/shared_segment.h"

namespace singa::distributed {

/// A collective hands data over in chunks. Each rank counts, over its whole life, the chunks of
/// which it has written its part, combined its share, and taken the result. All ranks run the same
/// collectives, so equal counts mean the same chunk.
enum class Stage : int { kWritten = 0, kCombined = 1, kTaken = 2 };

class RankGroup {
 public:
  /// Chunks that are under way at once.
  static constexpr uint64_t kBuffers = 4;
  /// Bytes of a rank's part of a chunk, and of a chunk's result. Four of both stay in the caches.
  static constexpr size_t kChunkBytes = size_t{256} << 10;
  /// Most bytes of a description.
  static constexpr size_t kDescription = size_t{16} << 10;

  /// Joins the job `name` and waits for all ranks. `timeout` is the deadline of every wait, in
  /// seconds. Raises std::invalid_argument for a rank outside of the world, or if ranks disagree
  /// about its size, and std::runtime_error, naming the ranks that are missing, at the deadline.
  RankGroup(const std::string& name, int rank, int world_size, double timeout);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Shows the other ranks which collective this rank is in, and a number for the layouts of its
  /// tensors. `number` counts from 1.
  void Describe(uint64_t number, const std::string& text, uint64_t layouts = 0);
  /// Waits until all ranks are in collective `number`. Fails if a description differs. Returns
  /// whether the layouts of all ranks are equal.
  bool CompareDescriptions(uint64_t number, const std::string& where);

  uint64_t count(Stage stage) const;
  /// Says that this rank has finished `stage` of the chunks before `count`.
  void Publish(Stage stage, uint64_t count);
  /// Waits until a rank, or all, have finished `stage` of the chunks before `count`. `where` names
  /// the collective in errors.
  void Await(int rank, Stage stage, uint64_t count, const std::string& where);
  void AwaitAll(Stage stage, uint64_t count, const std::string& where);

  /// Where `rank` writes its part of chunk `number`, and where the chunk's result goes.
  char* Slot(int rank, uint64_t number) const;
  char* Result(uint64_t number) const;

  /// How waits begin. A thread beside which others compute sleeps after a few microseconds. One
  /// that has nothing else to do tries for longer, since waking up takes time.
  void SetPatience(bool patient) { patient_ = patient; }

  /// Makes all ranks raise `text`; the first one stays. Returns the text that stayed.
  std::string Fail(const std::string& text) noexcept;
  /// Raises std::runtime_error with the text of Fail, if there was one.
  void ThrowIfFailed() const;
  /// Says that this rank makes no further collective, and waits, without a deadline, until all
  /// ranks have said so. False if one of them has failed instead.
  bool Leave();
  /// Shows the other ranks that this process is alive.
  void Beat() noexcept;

 private:
  struct Shared;
  struct Rank;

  Rank& At(int rank) const;
  void Wake(Rank& rank) const noexcept;
  template <class Ready>
  void WaitFor(int rank, const Ready& ready, const std::string& where);
  [[noreturn]] void Throw(const std::string& text);
  void CheckAlive(int rank, const std::string& where, double waited);
  std::vector<int> AwaitForMessage(uint64_t number) const;
  std::string Disagreement(const std::vector<int>& ranks, uint64_t number,
                           const std::string& where) const;

  int rank_;
  int world_size_;
  double timeout_;
  bool patient_ = false;
  std::unique_ptr<SharedSegment> segment_;
};

}  // namespace singa::distributed
