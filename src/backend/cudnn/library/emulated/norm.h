#pragma once

#include <memory>

#include "backend/cudnn/library/dnn.h"

namespace singa::cudnn::emulated {

/// Whether cuDNN has engines for it: on channels-last images whose channels fill vectors of 16
/// bytes, and for an addition only where ReLU follows.
bool HasNorm(const NormProblem& problem);

std::shared_ptr<const Executable> NewNorm(const NormProblem& problem, const Engine& engine);

}  // namespace singa::cudnn::emulated
