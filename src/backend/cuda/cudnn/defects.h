#pragma once

#include <string_view>

#include "backend/cuda/cudnn/dnn.h"

namespace singa::cudnn {

/// Why the results of an engine of cuDNN are wrong; null where no defect is known. Such an engine
/// is never chosen, by default, by measuring or from a table of choices. `engine` is Engine::name.
const char* DefectOf(const DnnProblem& problem, std::string_view engine);

}  // namespace singa::cudnn
