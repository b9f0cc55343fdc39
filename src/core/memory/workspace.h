#pragma once

#include <cstddef>

#include "singa/core/device.h"

namespace singa {

/// Device memory for the duration of a scope; null for 0 bytes.
class Workspace {
 public:
  Workspace(Device& device, size_t bytes)
      : device_(device), bytes_(bytes), data_(bytes ? device.Allocate(bytes) : nullptr) {}
  ~Workspace() {
    if (data_) device_.Free(data_, bytes_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }

 private:
  Device& device_;
  size_t bytes_;
  void* data_;
};

}  // namespace singa
