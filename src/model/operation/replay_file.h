#pragma once

// The file in which OPCHECK keeps a call that came out wrong: a text head (one item a line), the
// inputs' elements in row-major order, and a checksum over both.

#include <cstdint>
#include <string>
#include <string_view>

#include "model/operation/opcheck.h"

namespace singa::opcheck {

/// Writes the call to a new file in `directory` (empty: SINGA_OPCHECK_DIR, or the working
/// directory). Returns its path, or a sentence saying that it could not be written.
std::string WriteReplayFile(const Call& call, const std::string& directory);

/// Reads it back, all but `op` and `description`. Raises std::invalid_argument, naming the file, if
/// it is damaged; the sizes that it announces are compared with its own before memory is taken for
/// them. That finds accidents, not malice.
Call ReadReplayFile(const std::string& path);

/// FNV-1a of `bytes`, going on from `hash`.
uint64_t ReplayChecksum(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);

}  // namespace singa::opcheck
