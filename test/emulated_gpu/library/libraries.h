#pragma once

// Replaces cuDNN and cuBLASLt on the emulated GPU: one loop for all convolutions, one for all
// recurrent networks, and so on. Those of convolutions, batch norm and products pose as several
// engines, which tests may change.

#include <vector>

#include "backend/cuda/cublas/blas.h"
#include "backend/cuda/cudnn/dnn.h"
#include "backend/cuda/cudnn/rnn_network.h"

namespace singa::cudnn::emulated {

struct DnnState {
  std::vector<Engine> engines = {};       ///< offered for every problem
  std::vector<std::string> broken = {};   ///< names of engines that cannot be built
  std::vector<ConvProblem> asked = {};    ///< problems, in order
  std::vector<NormProblem> norms = {};    ///< problems, in order
  std::vector<std::string> built = {};    ///< names of engines, in order
  std::vector<int> built_on = {};         ///< GPU of the calling thread at each build
  std::vector<RnnProblem> networks = {};  ///< built networks, in order
  std::string problem = {};               ///< if not empty, the library is reported missing
};
DnnState& Dnn();

struct BlasState {
  std::vector<MatMulProblem> asked = {};
};
BlasState& Blas();

/// Resets both to the initial state.
void Reset();

}  // namespace singa::cudnn::emulated
