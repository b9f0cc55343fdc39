#include "backend/onednn/winograd_tiles.h"

#include <algorithm>

#include "core/parallel.h"

namespace singa::onednn::winograd {
namespace {

/// Loads an n x n tile of vectors whose first pixel is (h, w); zeros outside of the image.
template <int n>
SINGA_ALWAYS_INLINE void LoadTile(const Image& image, const float* x, int64_t h, int64_t w,
                                  Vec* tile, int tile_row) {
  const bool inside = h >= 0 && w >= 0 && h + n <= image.height && w + n <= image.width;
  const float* first = x + h * image.row_step + w * image.column_step;
  if (inside) {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        Load(tile[i * tile_row + j], first + i * image.row_step + j * image.column_step);
    return;
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      Vec& v = tile[i * tile_row + j];
      if (h + i >= 0 && h + i < image.height && w + j >= 0 && w + j < image.width) {
        Load(v, first + i * image.row_step + j * image.column_step);
      } else {
        v = Vec{};
      }
    }
  }
}

}  // namespace

SINGA_MULTI_ISA void TransformInput(const Image& image, const float* x, int64_t h, int64_t w,
                                    float* values, int64_t position_step) {
  for (int64_t block = 0; block < image.blocks; ++block) {
    Vec tile[kPositions];
    LoadTile<kIn>(image, x + block * image.block_step, h, w, tile, kIn);
    for (int i = 0; i < kIn; ++i) InputAxis(tile + i * kIn, 1);
    for (int j = 0; j < kIn; ++j) InputAxis(tile + j, kIn);
    for (int p = 0; p < kPositions; ++p)
      Store(values + p * position_step + block * kLanes, tile[p]);
  }
}

SINGA_MULTI_ISA void TransformOutputGradient(const Image& image, const float* dy, int64_t h,
                                             int64_t w, float* values, int64_t position_step) {
  for (int64_t block = 0; block < image.blocks; ++block) {
    Vec tile[kPositions];
    LoadTile<kOut>(image, dy + block * image.block_step, h, w, tile, kIn);
    for (int i = 0; i < kOut; ++i) OutputGradientAxis(tile + i * kIn, 1);
    for (int j = 0; j < kIn; ++j) OutputGradientAxis(tile + j, kIn);
    for (int p = 0; p < kPositions; ++p)
      Store(values + p * position_step + block * kLanes, tile[p]);
  }
}

SINGA_MULTI_ISA void TransformOutput(const Image& image, int64_t first, int64_t blocks,
                                     const float* values, int64_t position_step, const float* bias,
                                     int64_t h, int64_t w, float* y) {
  const int64_t rows = std::min<int64_t>(kOut, image.height - h);
  const int64_t columns = std::min<int64_t>(kOut, image.width - w);
  for (int64_t block = 0; block < blocks; ++block) {
    Vec tile[kPositions], shift = {};
    if (bias) Load(shift, bias + (first + block) * kLanes);
    for (int p = 0; p < kPositions; ++p) Load(tile[p], values + p * position_step + block * kLanes);
    for (int i = 0; i < kIn; ++i) OutputAxis(tile + i * kIn, 1);
    for (int j = 0; j < kOut; ++j) OutputAxis(tile + j, kIn);
    float* out =
        y + (first + block) * image.block_step + h * image.row_step + w * image.column_step;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        Store(out + i * image.row_step + j * image.column_step, tile[i * kIn + j] + shift);
  }
}

SINGA_MULTI_ISA void TransformFilter(const Filter& filter, const float* weights, float* values,
                                     int64_t position_step, int64_t columns) {
  for (int64_t d = 0; d < filter.depth; ++d) {
    float gathered[9][kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float* from = weights + lane * filter.lane_step + d * filter.depth_step;
      for (int i = 0; i < 9; ++i) gathered[filter.turned ? 8 - i : i][lane] = from[i];
    }
    Vec tile[kPositions];
    for (int i = 0; i < 9; ++i) Load(tile[i / 3 * kIn + i % 3], gathered[i]);
    for (int i = 0; i < 3; ++i) FilterAxis(tile + i * kIn, 1);
    for (int j = 0; j < kIn; ++j) FilterAxis(tile + j, kIn);
    for (int p = 0; p < kPositions; ++p) Store(values + p * position_step + d * columns, tile[p]);
  }
}

SINGA_MULTI_ISA void TransformFilterGradient(int64_t depth, const float* values,
                                             int64_t position_step, float* weights) {
  for (int64_t d = 0; d < depth; d += kLanes) {
    Vec tile[kPositions];
    for (int p = 0; p < kPositions; ++p) Load(tile[p], values + p * position_step + d);
    for (int i = 0; i < kIn; ++i) FilterGradientAxis(tile + i * kIn, 1);
    for (int j = 0; j < 3; ++j) FilterGradientAxis(tile + j, kIn);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < 9; ++i) weights[(d + lane) * 9 + i] = tile[i / 3 * kIn + i % 3][lane];
  }
}

SINGA_MULTI_ISA void SumRow(const float* row, int64_t step, int64_t count, double* sums) {
  Vec sum = {};
  for (int64_t i = 0; i < count; ++i) {
    Vec v;
    Load(v, row + i * step);
    sum += v;
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += sum[lane];
}

}  // namespace singa::onednn::winograd
