#pragma once

#include <memory>
#include <string>

#include "backend/cudnn/library/dnn.h"

namespace singa::cudnn {

/// cuDNN. With `device_properties`, cuDNN's description of a GPU as JSON, engines are listed and
/// built for that one, which need not be there; nothing can be run then.
std::unique_ptr<DnnLibrary> NewCudnn(const std::string& device_properties = "");

}  // namespace singa::cudnn
