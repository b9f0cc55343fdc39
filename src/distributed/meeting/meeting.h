#pragma once

// How ranks that are started find each other.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/meeting/listener.h"
#include "distributed/meeting/messages.h"
#include "distributed/meeting/nodes.h"

namespace singa::distributed {

/// Gives each rank's text to all ranks, in their order. All ranks call it.
using Exchange = std::function<std::vector<std::string>(const std::string&)>;
/// Most bytes of such a text.
inline constexpr size_t kExchangedText = 1000;

/// How the first rank of a node reaches the nodes beside it.
struct Meeting {
  std::unique_ptr<Listener> listener;  // for the next node
  std::string before;                  // address of the node before
  Pass pass;                           // of the connections between nodes
  std::unique_ptr<Messages> messages;  // they carry the data; null: the connections do
};

/// `job` is a name that no other job has. Without a secret the exchange carries one. `inside`: all
/// nodes are on this machine.
Meeting Meet(const Nodes& nodes, const std::string& job, const std::string& secret, bool inside,
             const Exchange& exchange);

/// Whether MPI has started the ranks, and whether it then carries their data unless SINGA_TRANSPORT
/// says otherwise.
enum class MpiRole { kNone, kIfAsked, kByDefault };

/// Whether MPI carries the data between nodes, by SINGA_TRANSPORT: with "auto", or unset, if that
/// is the default of all ranks. Raises std::invalid_argument if ranks have different values, and if
/// MPI should carry it but has not started them.
bool UsesMpi(const Exchange& exchange, MpiRole role);

/// An exchange between ranks of one machine that are taken for several nodes: through a segment of
/// shared memory, once. Raises std::runtime_error, naming a rank that is missing, after `timeout`
/// seconds.
Exchange ExchangeOnMachine(const std::string& job, int rank, int world_size, double timeout);

/// The machine of a rank: `machine`, or with SINGA_NODE_RANKS its part that holds the rank.
std::string NodeName(const std::string& machine, int rank);

/// Identifies what shares memory: this machine, by its name and until it is started again, or a
/// container.
std::string ThisMachine();
/// A name that no other job has.
std::string NewJobName();

}  // namespace singa::distributed
