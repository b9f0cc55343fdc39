#pragma once

// Shared by kernels that use cuDNN: which engines are permitted, their names in the tuning table,
// and the first one that can be built.

#include <exception>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn/dnn.h"
#include "model/dispatch/kernel.h"

namespace singa::cudnn {

inline constexpr const char* kCudnn = "cudnn";

/// The `engines` that the present settings (strict, TF32, deterministic) permit, in the same order.
std::vector<Engine> Permitted(std::vector<Engine> engines, DType dtype);

/// The permitted engines for `problem`, with their known defects.
std::vector<Engine> PermittedEngines(const DnnProblem& problem);

/// The reason for refusing if there is none.
inline constexpr const char* kNoEngine =
    "cuDNN has no engine for this that the settings (strict, TF32, deterministic) permit";

/// The first `most` engines as candidates. `make` makes an engine's plan.
std::vector<Candidate> CandidatesOf(const std::vector<Engine>& engines, size_t most,
                                    const std::function<PlanPtr(const Engine&)>& make);

/// The plan of the first engine that has no defect and can be built. Heuristics may list engines
/// that do not support the problem.
PlanOrReason FirstPlan(const std::vector<Engine>& engines,
                       const std::function<PlanPtr(const Engine&)>& make);

}  // namespace singa::cudnn
