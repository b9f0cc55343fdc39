#pragma once

// The file in which OPCHECK keeps a call that came out wrong: a safetensors file. Its tensors are
// the inputs as they were before, "input.0" and so on, and the outputs that were computed,
// "output.0" and so on; arguments that the call left out are missing. They are row-major. The
// metadata "singa" is a JSON object of strings, which names the operation, the implementation and
// the layer, and holds the Spec's fields and where each argument lay. "singa_crc32" is a checksum
// as in singa's checkpoints.
//
// C++ writes it, wherever the mismatch was found. Python reads it, with the safetensors library
// (python/singa/replay_file.py), and hands what it holds to ReplayCall.

#include <span>
#include <string>
#include <vector>

#include "model/operation/call_check.h"

namespace singa::opcheck {

/// Writes the call, with what it computed, to a new file in `directory` (empty: SINGA_OPCHECK_DIR,
/// or the working directory), which is there as a whole or not at all. Follows no symbolic link.
/// Returns its path, or a sentence saying that it could not be written.
std::string WriteReplayFile(const Call& call, std::span<const Tensor> outputs,
                            const std::string& directory);

/// The call that a file holds, but for `op`. Raises std::invalid_argument for what no
/// WriteReplayFile wrote. The Spec's fields are left as text.
Call ReadCall(const std::vector<std::string>& names, const std::vector<std::string>& values,
              const std::vector<std::string>& tensor_names, const std::vector<Tensor>& tensors);

}  // namespace singa::opcheck
