#pragma once

// The inner loops of batch normalisation on tensors whose channels lie side by side. A row is all
// channels of one pixel, or a block of them; rows follow each other in memory. T, the type of the
// tensors' elements, is float or BFloat16; everything is computed in float32.

#include <cstdint>

namespace singa::onednn {

/// Elements on which a loop works at a time at most, and the most channels of a row.
inline constexpr int64_t kBatchNormTile = 2048;
/// Rows whose float32 sums go into the double ones together.
inline constexpr int64_t kBatchNormRows = 64;

/// The numbers of each channel of a row that make BatchNormAffine.
struct AffineRow {
  const float* mean;
  const float* factor;
  const float* bias;
};

/// Adds Σ (x − shift) to `sum` and Σ (x − shift)² to `squares`, for each channel.
template <class T>
void AddDeviations(const T* x, int64_t rows, int64_t width, const float* shift, float* sum,
                   float* squares);

/// Turns the sums of `rows` values around `shift` into those around `origin`, and adds them to
/// total[0 .. width), Σ (x − origin), and total[width .. 2 · width), Σ (x − origin)².
void AddToTotals(int64_t rows, int64_t width, const float* shift, const float* origin,
                 const float* sum, const float* squares, double* total);
/// Adds two sums as they are.
void AddToTotals(int64_t width, const float* sum, const float* products, double* total);

/// Mean and biased variance of `rows` values around `origin`, from their totals.
void FindStatistics(const double* total, const float* origin, int64_t rows, int64_t width,
                    float* mean, float* var);
/// The factors of BatchNormAffine; scale may be null.
void FindFactors(const float* var, const float* scale, double epsilon, int64_t channels,
                 float* factor);
/// dscale, dbias, and what dx subtracts (see GradientRows), from the totals of g and g · (x −
/// mean).
void FindSlopes(const double* total, const float* var, const float* factor, double epsilon,
                int64_t rows, int64_t width, float* dscale, float* dbias, float* constant,
                float* slope);

// Results may be written past the caches, `stream`: what is larger than those is gone
// before anybody reads it, and lines that are written in full need not be read first. Addresses and
// widths have to be multiples of 16 bytes then; StreamFence() has to come before another thread
// reads them.

/// y = bn(x), + add where that is not null, and then ReLU. y may be x or add.
template <class T>
void NormalizeRows(const T* x, const T* add, int64_t rows, int64_t width, const AffineRow& row,
                   bool relu, T* y, bool stream);

/// Where dy counts.
enum class ReluMask {
  kNone,   // everywhere
  kFromX,  // where bn(x) > 0
  kFromY,  // where y > 0
};

/// With g = dy where that counts, else 0: adds Σ g and Σ g · (x − mean), for each channel.
template <class T>
void AddGradients(ReluMask mask, const T* dy, const T* x, const T* y, int64_t rows, int64_t width,
                  const AffineRow& row, float* sum, float* products);

/// The same with kFromY, and writes g to `dadd`, which may be dy. Where dy2 is not null, the
/// gradient is dy + dy2, rounded to a T.
template <class T>
void AddGradientsOfSum(const T* dy, const T* dy2, const T* x, const T* y, int64_t rows,
                       int64_t width, const float* mean, float* sum, float* products, T* dadd,
                       bool stream);

/// dx = factor · g − constant − slope · (x − mean). dx may be dy or x.
template <class T>
void GradientRows(ReluMask mask, const T* dy, const T* x, const T* y, int64_t rows, int64_t width,
                  const AffineRow& row, const float* constant, const float* slope, T* dx,
                  bool stream);

void StreamFence();

}  // namespace singa::onednn
