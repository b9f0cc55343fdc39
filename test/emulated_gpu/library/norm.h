#pragma once

#include <memory>

#include "backend/cuda/cudnn/dnn.h"

namespace singa::cudnn::emulated {

/// Whether cuDNN has engines for the problem: for channels-last images whose channels fill vectors
/// of 16 bytes; a residual is supported only with ReLU.
bool HasNorm(const NormProblem& problem);

std::shared_ptr<const Executable> NewNorm(const NormProblem& problem, const Engine& engine);

}  // namespace singa::cudnn::emulated
