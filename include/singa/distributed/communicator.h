#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "singa/core/export.h"
#include "singa/core/tensor.h"

// Communication between the processes that train one model: the ranks of a job, which run the same
// program on parts of the data.

namespace singa {

#ifndef SWIG
namespace distributed {
class Nodes;
struct MpiJob;
using Exchange = std::function<std::vector<std::string>(const std::string&)>;
}  // namespace distributed
#endif

class Reduction;

/// How often, and for how many seconds, a rank has waited for `rank`, the last one to come to the
/// collectives of a name, such as "all_reduce conv1.W and 3 more".
struct CollectiveWait {
  int rank;
  std::string collective;
  int64_t times;
  double seconds;
};

/// A rank's connection to the others of its job. All ranks call the same collectives in the same
/// order. A collective is described to the other ranks: names, shapes and types of its tensors, and
/// what is done with them. Ranks that disagree raise one std::runtime_error that says in what.
///
/// A collective waits at most `timeout` seconds for another rank, and raises std::runtime_error
/// that names the rank if that one has ended, left or does not answer. From then on all ranks raise
/// that error.
///
/// The tensors of a call are on one device. On the CPU, a thread of its own carries out what was
/// started; it needs no lock of Python. Those of GPUs, one for each rank, are queued there in the
/// order of the calls, and nobody waits for the result. An error that shows later is raised by the
/// next call that waits for the GPU, and by all later collectives.
class SINGA_API Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Joins the ranks of a job on this machine. `job` is a name that no other start of a job has;
  /// with one rank it is not used. Raises std::invalid_argument for a rank outside of the world and
  /// std::runtime_error if ranks are missing at the deadline.
  static std::shared_ptr<Communicator> Join(const std::string& job, int rank, int world_size,
                                            double timeout = 60);
  /// Joins the ranks of the MPI job that this process is part of, on one machine or several. MPI
  /// tells them of each other. Data goes through shared memory within a machine, and between
  /// machines by MPI or through TCP connections, as SINGA_TRANSPORT says. The library is one that
  /// is loaded, else the first of these files that opens. Raises std::runtime_error if there is
  /// none, or if machines cannot be reached. MPI itself has no deadline: where ranks are missing
  /// after `timeout` seconds, this process ends with status 1.
  static std::shared_ptr<Communicator> JoinMpi(const std::vector<std::string>& libraries,
                                               double timeout = 60);
  /// The same without MPI: rank 0 listens at `meeting`, "host:port", and tells the ranks of each
  /// other. `job` is a text that other jobs do not have. Ranks prove that they know `secret`, which
  /// may be empty where the meeting cannot be reached from other machines, or with
  /// SINGA_INSECURE=1. Raises std::invalid_argument for another meeting or secret, and
  /// std::runtime_error if ranks are missing at the deadline.
  static std::shared_ptr<Communicator> JoinAt(const std::string& meeting, const std::string& job,
                                              int rank, int world_size, double timeout = 60,
                                              const std::string& secret = "");
  /// Ends MPI at the end of the program, if JoinMpi has initialised it and no rank has failed.
  /// Raises std::runtime_error if a rank is stopped.
  static void LeaveMpi(const std::shared_ptr<Communicator>& communicator);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const int world_size;
  const int global_rank;
  const int local_rank;  ///< within the ranks of this machine
  const int local_size;

  /// Replaces each tensor by factor · (its sum over the ranks), added in the order of the ranks.
  /// Bits follow from the values alone. Sums of 16-bit floats are added in float32 and rounded
  /// once. On GPUs with SetDeterministic(false), NCCL chooses the order for wider types. `names`
  /// are for errors; they may be empty.
  void AllReduce(const std::vector<Tensor>& tensors, const std::vector<std::string>& names = {},
                 double factor = 1);
  /// The tensors of all ranks: (world_size, ...).
  Tensor AllGather(const Tensor& tensor);
  /// Replaces the tensors by those of rank `root`.
  void Broadcast(const std::vector<Tensor>& tensors, int root,
                 const std::vector<std::string>& names = {});
  /// Returns when all ranks have called it.
  void Barrier();
  /// Raises if the texts of the ranks differ. The error names the first line that differs.
  void CheckEqual(const std::string& text);
  /// A text for the descriptions of the following collectives, such as the number of the step.
  void SetContext(const std::string& text);
  /// Makes this rank and the others raise `text` in their present or next collective.
  void Abort(const std::string& text);
  /// How long this rank has waited for others so far. Of more than some thousand names, others
  /// have the name "".
  std::vector<CollectiveWait> Waits() const;
  /// Whether the ranks had refused different plans (singa/dispatch/spot_check.h) when they came to
  /// the last collective. All get the same answer where none is in a collective.
  bool RefusalsDiffer() const;
  /// Waits until everything that was started has ended or failed. Raises nothing.
  void Drain() noexcept;

#ifndef SWIG
  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  static std::shared_ptr<Communicator> JoinBy(const distributed::Exchange& exchange, int rank,
                                              double timeout, const std::string& secret,
                                              bool inside,
                                              const distributed::MpiJob* mpi = nullptr);
  Communicator(const distributed::Nodes& nodes, std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
#endif
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// An all-reduce that runs beside other work. Start and Wait are operations: a recorded step
/// contains and repeats them. Nothing may use the tensors between the two.
///
/// `shards` are the lists of tensors that this rank adds, one list after the other; lists are equal
/// in length, names, shapes and types. The results replace the tensors of the first one: factor ·
/// sum, where the lists of rank 0 come first. The tensors are contiguous, or in opaque layouts, and
/// of one type.
///
/// With `owners`, a rank for each tensor of a list, this is a reduce-scatter: the sum of a tensor
/// is its owner's alone, with the same bits, and the other ranks keep what they had. On GPUs all
/// ranks get all sums.
class SINGA_API Reduction {
 public:
  Reduction(CommunicatorPtr communicator, const std::vector<Tensor>& tensors,
            const std::vector<std::string>& names, int shards, double factor,
            const std::vector<int64_t>& owners = {});
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  void Start();
  /// Raises std::runtime_error if the all-reduce has failed.
  void Wait();
  /// Start and Wait in one operation.
  void Run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// An all-gather of tensors that lie in place, which runs beside other work as a Reduction does:
/// replaces each tensor by that of its owner, a rank. The tensors are on the CPU, contiguous or in
/// opaque layouts, and may have several types.
class SINGA_API Gathering {
 public:
  Gathering(CommunicatorPtr communicator, const std::vector<Tensor>& tensors,
            const std::vector<std::string>& names, const std::vector<int64_t>& owners);
  ~Gathering();
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  void Start();
  /// Raises std::runtime_error if the all-gather has failed.
  void Wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Updates running statistics of batch norms by the batches of all ranks, as if one process had
/// seen these one after the other: shard 0 of rank 0 first.
///
/// running (2·n): mean and variance of each batch norm, each (C). batch (2·n for each shard): those
/// of the batch. counts (n for each shard): values per channel. factors (n): the momentum. An
/// operation, like Start and Wait of a Reduction.
SINGA_API void UpdateStatistics(const CommunicatorPtr& communicator,
                                const std::vector<Tensor>& running,
                                const std::vector<Tensor>& batch,
                                const std::vector<int64_t>& counts,
                                const std::vector<double>& factors);

}  // namespace singa
