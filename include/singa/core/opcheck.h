#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/error.h"
#include "singa/core/export.h"
#include "singa/core/tensor.h"

namespace singa {

/// Raised by OPCHECK when an implementation disagrees with `reference`.
class SINGA_API OpcheckMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// OPCHECK runs each operation on its chosen implementation and on `reference` and compares the
/// results with a tolerance that grows with the length of the sums. The results that the program
/// sees stay the chosen one's.
struct OpcheckOptions {
  int64_t every = 0;             ///< 0: off; 1: each operation; N: one in N
  std::vector<std::string> ops;  ///< names, such as "ConvForward"; empty: all
  bool raise = true;             ///< raise OpcheckMismatch, or warn on stderr and count
  std::string replay_directory;  ///< where a mismatch is saved; empty: SINGA_OPCHECK_DIR or the
                                 ///< working directory
};

struct OpcheckOpStats {
  std::string op;
  uint64_t checked = 0;  ///< compared with `reference`
  uint64_t failed = 0;
  /// Ran under OPCHECK, but gave nothing to compare: no elements, results in a private form alone,
  /// or a call that `reference` does not take.
  uint64_t uncompared = 0;
  double worst_ratio = 0;  ///< largest |difference| / tolerance seen
};

/// Environment: SINGA_OPCHECK=N sets `every`.
SINGA_API void SetOpcheck(const OpcheckOptions& options);
SINGA_API OpcheckOptions GetOpcheck();
SINGA_API std::vector<OpcheckOpStats> GetOpcheckStats();
SINGA_API void ResetOpcheckStats();
/// Operations that came along since then, wanted or not, while OPCHECK was on.
SINGA_API uint64_t OpcheckSeen();
/// Runs the operation of a saved mismatch again, compares, and returns the report: what
/// `python -m singa replay` does with a file once it is read. `names` and `values` are its
/// metadata, `tensors` those in it, bfloat16 as itself. Raises OpcheckMismatch when the operation
/// still disagrees, std::invalid_argument for a call that its operation would not have let through.
SINGA_API std::string ReplayCall(const std::vector<std::string>& names,
                                 const std::vector<std::string>& values,
                                 const std::vector<std::string>& tensor_names,
                                 const std::vector<Tensor>& tensors);

}  // namespace singa
