#pragma once

#include <functional>
#include <string>

#include "core/device/device_group.h"
#include "singa/core/device.h"

namespace singa::nccl {

/// Bytes of the buffer through which ordered sums go.
inline constexpr size_t kStaging = size_t{64} << 20;

/// See DeviceGroups. `gpu` is a GPU of this backend.
std::string NewGroupId();
DeviceGroupPtr JoinGroup(const DevicePtr& gpu, const std::string& id, int rank, int world_size,
                         const std::function<void(double)>& check, size_t staging = kStaging);

}  // namespace singa::nccl
