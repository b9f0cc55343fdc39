#include "core/device/device_group.h"

namespace singa {

DeviceGroup::~DeviceGroup() = default;
DeviceGroups::~DeviceGroups() = default;

}  // namespace singa
