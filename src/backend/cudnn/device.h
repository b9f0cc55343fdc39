#pragma once

#include "singa/core/device.h"

namespace singa::cuda {

/// The GPU of this number, which has to exist, with memory of its own.
DevicePtr NewDevice(int id);

}  // namespace singa::cuda
