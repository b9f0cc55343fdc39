#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/error.h"
#include "singa/core/export.h"
#include "singa/core/tensor.h"

namespace singa {

/// Raised by OPCHECK if the results of an implementation differ from those of `reference`.
class SINGA_API OpcheckMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// OPCHECK runs each operation with the chosen implementation and with `reference`, and compares
/// the results. The tolerance grows with the number of terms in a sum. The program gets the results
/// of the chosen implementation.
struct OpcheckOptions {
  int64_t every = 0;             ///< check one in `every` executions; 0: off
  std::vector<std::string> ops;  ///< operations to check, such as "ConvForward"; empty: all
  bool raise = true;             ///< on a mismatch raise OpcheckMismatch, else warn on stderr
  std::string replay_directory;  ///< where mismatches are saved; empty: SINGA_OPCHECK_DIR, or the
                                 ///< working directory
  /// Also compare all other implementations that can compute the call, in every layout that they
  /// offer. What they give is counted (GetOpcheckKernelStats), and never raised.
  bool every_kernel = false;
};

/// What OPCHECK found for one operation.
struct OpcheckOpStats {
  std::string op;
  uint64_t checked = 0;  ///< executions compared with `reference`
  uint64_t failed = 0;
  /// Executions with nothing to compare: the results have no elements or are in a form private to
  /// the implementation, or `reference` does not support the call.
  uint64_t uncompared = 0;
  double worst_ratio = 0;  ///< largest |difference| / tolerance
};

/// Comparisons of one implementation, with OpcheckOptions::every_kernel.
struct OpcheckKernelStats {
  std::string op;
  std::string kernel;  ///< such as "onednn jit:avx2 nhwc nChw8c": library, implementation, layouts
  uint64_t checked = 0;
  uint64_t failed = 0;
  double worst_ratio = 0;
  /// Why singa never chooses it for these calls; empty for what can be chosen.
  std::string refused;
  std::string example;  ///< the first call that failed, and how; empty if none did
};

/// Environment: SINGA_OPCHECK=N sets `every`.
SINGA_API void SetOpcheck(const OpcheckOptions& options);
/// The options in force.
SINGA_API OpcheckOptions GetOpcheck();
/// Results by operation since ResetOpcheckStats.
SINGA_API std::vector<OpcheckOpStats> GetOpcheckStats();
/// Since ResetOpcheckStats, sorted by operation and kernel. Refused calls have entries of their
/// own.
SINGA_API std::vector<OpcheckKernelStats> GetOpcheckKernelStats();
/// Forgets all counts.
SINGA_API void ResetOpcheckStats();
/// Executions since ResetOpcheckStats while OPCHECK was on, whether they were checked or not.
SINGA_API uint64_t OpcheckSeen();
/// Repeats the call of a saved mismatch, compares it with `reference`, and returns a report.
/// `python -m singa replay` passes it the contents of a file: the metadata as `names` and `values`,
/// and the tensors with their types, bfloat16 included. Raises OpcheckMismatch if the results still
/// differ, and std::invalid_argument if the operation would have rejected the call.
SINGA_API std::string ReplayCall(const std::vector<std::string>& names,
                                 const std::vector<std::string>& values,
                                 const std::vector<std::string>& tensor_names,
                                 const std::vector<Tensor>& tensors);

}  // namespace singa
