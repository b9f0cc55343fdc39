#pragma once

#include <cstdint>
#include <string>

#include "singa/core/device.h"

namespace singa::cuda {

/// The GPU `id`, which must exist, with an allocator of its own.
DevicePtr NewDevice(int id);

/// A number of the capture that this thread makes on the device, which must be a GPU, and no other
/// capture has; 0: it makes none.
uint64_t CaptureOf(const Device& device);
/// The next call that waits for the device raises std::runtime_error with this text. Any thread may
/// call it.
void FailNextWait(Device& device, const std::string& text);

}  // namespace singa::cuda
