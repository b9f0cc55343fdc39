#pragma once

#include <cstdint>

#include "core/tensor/round_up.h"

namespace singa::cpu {

/// Gives out parts of a workspace, in floats. Each begins a cache line.
class Parts {
 public:
  int64_t Take(int64_t floats) {
    const int64_t at = size_;
    size_ += RoundUp(floats, 16);
    return at;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

}  // namespace singa::cpu
