#pragma once

// What kernels by cuDNN have in common: which engines may be used, what they are called in the
// table of choices, and the first that can be built.

#include <exception>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "backend/cudnn/library/dnn.h"
#include "model/operation/kernel.h"

namespace singa::cudnn {

inline constexpr const char* kCudnn = "cudnn";

/// Those of `engines` that may be used under the present settings (strict, TF32, deterministic), in
/// their order.
std::vector<Engine> Permitted(std::vector<Engine> engines, DType dtype);

/// Those that do `problem`.
std::vector<Engine> PermittedEngines(const DnnProblem& problem);

/// Why none is there.
inline constexpr const char* kNoEngine =
    "cuDNN has no engine for this that the settings (strict, TF32, deterministic) permit";

/// The first `most`, as candidates. `make`: a plan of an engine.
std::vector<Candidate> CandidatesOf(const std::vector<Engine>& engines, size_t most,
                                    const std::function<PlanPtr(const Engine&)>& make);

/// The plan of the first engine that can be built; heuristics also name some that turn out not to
/// fit. Where none can, the error says that of `what`, and the reasons.
PlanPtr FirstPlan(const std::vector<Engine>& engines,
                  const std::function<PlanPtr(const Engine&)>& make, const std::string& what);

}  // namespace singa::cudnn
