#pragma once

// The safetensors file in which OPCHECK saves a call with wrong results. Its tensors are the inputs
// as they were before the call ("input.0", ...) and the computed outputs ("output.0", ...), all
// row-major. Arguments that the call left out are missing. The metadata "singa" is a JSON object of
// strings: operation, implementation, layer, the Spec's fields, and the place of each argument.
// "singa_crc32" is a checksum as in singa's checkpoints.
//
// C++ writes the file. Python reads it with the safetensors library (python/singa/files/
// replay_file.py) and passes the contents to ReplayCall.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/dispatch/call_check.h"

namespace singa::opcheck {

/// Writes the call and its outputs to a new file in `directory` (empty: SINGA_OPCHECK_DIR, or the
/// working directory). The file appears as a whole or not at all. Symbolic links are not followed.
/// Returns the path, or a sentence that says why the file could not be written.
std::string WriteReplayFile(const Call& call, std::span<const Tensor> outputs,
                            const std::string& directory);

/// The call in a file, without `op`. The Spec's fields stay text. Raises std::invalid_argument for
/// contents that WriteReplayFile does not write.
Call ReadCall(const std::vector<std::string>& names, const std::vector<std::string>& values,
              const std::vector<std::string>& tensor_names, const std::vector<Tensor>& tensors);

/// The device on which a saved call runs. Raises std::invalid_argument where there is none.
DevicePtr DeviceOf(const Call& call);
/// The places of a strided tensor's elements, counted from its first one.
struct StridedSpan {
  int64_t low = 0, high = 0;
};
/// None where the tensor has so many gaps that a file does not keep its strides.
std::optional<StridedSpan> SpanOf(const Shape& shape, const Strides& strides);
/// A copy of `t` in this place.
Tensor Placed(const Tensor& t, const Placement& place, const DevicePtr& device);

/// A message where a saved call had an argument in another layout than the plan wants here; else
/// empty.
std::string ChangedPlace(const std::string& name, const Placement& place, const LayoutPtr& wanted);

}  // namespace singa::opcheck
