#pragma once

// OPCHECK: runs an operation on its chosen implementation and on `reference`, and compares
// (checked_run.h). Here: which calls are compared, and what becomes of the results.

#include <span>
#include <string>

#include "core/statistics/uncounted.h"
#include "model/dispatch/call_check.h"
#include "model/dispatch/opcheck/difference.h"
#include "singa/core/plan.h"
#include "singa/core/tensor.h"
#include "singa/dispatch/opcheck.h"

namespace singa {

struct Candidate;  // kernel.h

namespace opcheck {

/// True when this call is to be compared with `reference`.
bool IsEnabledFor(const char* op, const Plan& plan);
/// True when this node, which stands for several operations ("Mul+Tanh"), is to be compared.
bool IsEnabledForMerged(const char* op);

/// Counts a comparison. A difference saves the call, and raises or warns, as the options say.
void Report(const Call& call, std::span<const Tensor> chosen, const Difference& difference);

/// Whether all implementations are to be compared, as OpcheckOptions::every_kernel says.
bool ChecksEveryKernel();
/// Counts a comparison for OpcheckKernelStats.
void CountKernel(const Call& call, const Candidate& candidate, const Difference& difference);

/// Counts a call that could not be compared.
void CountUncompared(const char* op);

/// Whether OPCHECK is on.
bool IsOn();
/// Where saved calls go: OpcheckOptions::replay_directory.
std::string ReplayDirectory();

/// While a Pause exists, no operation of this thread is checked or counted. Checking itself runs
/// operations.
class Pause {
 public:
  Pause();
  ~Pause();

 private:
  UncountedScope uncounted_;
};
bool IsPaused();

}  // namespace opcheck
}  // namespace singa
