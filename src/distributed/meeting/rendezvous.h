#pragma once

#include <string>

#include "distributed/meeting/meeting.h"

namespace singa::distributed {

/// Where ranks on several machines find each other without MPI.
struct Place {
  std::string host;  ///< name or address of rank 0's machine
  int port = 0;
};

/// The place that "host:port" names; an IPv6 address is in brackets. Raises std::invalid_argument
/// for another text.
Place PlaceOf(const std::string& text);

/// Raises std::invalid_argument if other machines can reach the place, and strangers would be taken
/// for ranks: without a secret of 16 characters or more, unless SINGA_INSECURE is 1.
void CheckSecret(const Place& place, const std::string& secret);

/// An exchange through rank 0, which listens at `place`. `job` is a text that the ranks of no other
/// job there have; with `secret` the two sides of a connection prove that they belong to it. The
/// call connects the ranks. It raises std::runtime_error after `timeout` seconds: in rank 0 and
/// those that have reached it, with the ranks that are missing.
Exchange ExchangeAt(const Place& place, const std::string& job, const std::string& secret, int rank,
                    int world_size, double timeout);

}  // namespace singa::distributed
