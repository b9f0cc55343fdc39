#pragma once

#include <memory>
#include <string>

#include "backend/cuda/cudnn/dnn.h"

namespace singa::cudnn {

/// cuDNN. With `device_properties`, cuDNN's JSON description of a GPU, engines are listed and built
/// for that GPU, which need not be present; they cannot run then.
std::unique_ptr<DnnLibrary> NewCudnn(const std::string& device_properties = "");

}  // namespace singa::cudnn
