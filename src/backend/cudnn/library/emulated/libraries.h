#pragma once

// What takes the places of cuDNN and cuBLASLt on the emulated GPU: one loop for all convolutions,
// one for all recurrent networks, and so on. Those of convolutions, batch norm and products go
// under the names of several engines, which tests may change.

#include <vector>

#include "backend/cudnn/library/blas.h"
#include "backend/cudnn/library/dnn.h"
#include "backend/cudnn/library/rnn_network.h"

namespace singa::cudnn::emulated {

struct DnnState {
  std::vector<Engine> engines = {};       ///< what every problem is offered
  std::vector<std::string> broken = {};   ///< names of those that cannot be built
  std::vector<ConvProblem> asked = {};    ///< in order
  std::vector<NormProblem> norms = {};    ///< likewise
  std::vector<std::string> built = {};    ///< likewise
  std::vector<int> built_on = {};         ///< the GPUs of the calling threads then
  std::vector<RnnProblem> networks = {};  ///< made ready, in order
  std::string problem = {};               ///< as if the library were missing
};
DnnState& Dnn();

struct BlasState {
  std::vector<MatMulProblem> asked = {};
};
BlasState& Blas();

/// Both as they are at the start.
void Reset();

}  // namespace singa::cudnn::emulated
