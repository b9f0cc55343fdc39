#pragma once

#include "model/formula/philox.h"

namespace singa {

/// The n words of RandomWords from `position` on, computed many blocks at a time.
void PhiloxFill(uint64_t seed, uint64_t position, int64_t n, uint32_t* words);

/// Elements that random kernels generate at a time.
inline constexpr int64_t kRandomChunk = 1024;

}  // namespace singa
