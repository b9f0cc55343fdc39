#pragma once

#include "singa/core/device.h"

namespace singa::cuda {

/// The GPU `id`, which must exist, with an allocator of its own.
DevicePtr NewDevice(int id);

}  // namespace singa::cuda
