#pragma once

#include <cstdint>

#include "backend/cudnn/launch.h"

namespace singa::cuda {

inline constexpr int kGemmTile = 64;  ///< rows and columns of a product for each block
inline constexpr int64_t kMostGridY = 65535;

/// Blocks for batches of products (m, n), as far as a grid goes: x counts the tiles of one, 2^31 −
/// 1 of them (more than memory holds), and y batches.
inline dim3 GemmGrid(int64_t batches, int64_t m, int64_t n) {
  const auto tiles = [](int64_t length) { return (length + kGemmTile - 1) / kGemmTile; };
  return dim3(static_cast<unsigned>(tiles(m) * tiles(n)),
              static_cast<unsigned>(batches < kMostGridY ? batches : kMostGridY));
}

}  // namespace singa::cuda
