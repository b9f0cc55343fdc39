#pragma once

#include <cstdint>

#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {

inline constexpr int kGemmTile = 64;  ///< rows and columns of C per block
inline constexpr int64_t kMostGridY = 65535;

/// The grid for batches of products (m, n), up to the largest grid: x counts the tiles of a product
/// (up to 2^31 − 1, more than memory holds), y counts batches.
inline dim3 GemmGrid(int64_t batches, int64_t m, int64_t n) {
  const auto tiles = [](int64_t length) { return (length + kGemmTile - 1) / kGemmTile; };
  return dim3(static_cast<unsigned>(tiles(m) * tiles(n)),
              static_cast<unsigned>(batches < kMostGridY ? batches : kMostGridY));
}

}  // namespace singa::cuda
