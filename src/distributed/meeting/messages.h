#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace singa::distributed {

/// Messages between the ranks of a job, as MPI has them. No call waits. Calls come from one thread
/// at a time; they raise std::runtime_error.
class Messages {
 public:
  using Id = uint64_t;
  virtual ~Messages() = default;
  /// Start to send or to receive. Between two ranks, messages of one tag arrive in the order in
  /// which they are sent, at the receives in the order of these. The bytes stay until the id, which
  /// the caller chooses, has finished.
  virtual void Send(Id id, const char* data, size_t bytes, int rank, int tag) = 0;
  virtual void Receive(Id id, char* data, size_t bytes, int rank, int tag) = 0;
  /// Moves on what was started, and what the library still holds of it; returns the ids that have
  /// finished. What was sent may not have arrived then.
  virtual std::vector<Id> Progress() = 0;
};

/// Makes those of this rank. All ranks of a job call it.
using MakeMessages = std::function<std::unique_ptr<Messages>()>;

}  // namespace singa::distributed
