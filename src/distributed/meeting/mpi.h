#pragma once

#include <string>
#include <vector>

#include "distributed/meeting/meeting.h"
#include "distributed/meeting/messages.h"

namespace singa::distributed {

/// What an MPI library says of this process's job.
struct MpiJob {
  int rank = 0;
  int world_size = 1;
  Exchange exchange{};  ///< between all ranks
  /// By default with an MPI whose jobs end after faults as they do with TCP, if it lets singa's
  /// thread make calls.
  MpiRole role = MpiRole::kIfAsked;
  /// Messages on a communicator of their own. All ranks call it. Raises std::runtime_error if MPI
  /// does not let another thread than the one that has initialised it make calls.
  MakeMessages messages{};
};

/// Opens an MPI library, initialises it if nobody has, and asks it about the job. All ranks call
/// it. A library that the process has loaded already is taken before `libraries`, file names of
/// which the first one that opens is taken. Known are the interface of MPICH (libmpi.so.12, also
/// Intel's), MPI 5's standard one (libmpi_abi.so.1) and that of Open MPI (libmpi.so.40).
///
/// MPI's calls wait for all ranks. One that takes more than `timeout` seconds ends the process with
/// status 1 and a message.
///
/// Raises std::runtime_error if there is no library, or if a call fails.
MpiJob AskMpi(const std::vector<std::string>& libraries, double timeout);

/// Ends MPI if AskMpi has initialised it. Waits for the other ranks to do the same, as long as
/// AskMpi.
void FinalizeMpi();

}  // namespace singa::distributed
