#pragma once

// Inner loops of batch normalisation on tensors with contiguous channels. A row is all channels of
// a pixel, or a block of them; rows are contiguous.

#include <cstdint>

#include "singa/operation/activation.h"

namespace singa::cpu {

/// Maximum number of elements per loop call, and of channels per row.
inline constexpr int64_t kBatchNormTile = 2048;
/// Rows whose float32 sums are added to the double sums together.
inline constexpr int64_t kBatchNormRows = 64;

/// The constants of BatchNormAffine for each channel of a row.
struct AffineRow {
  const float* mean;
  const float* factor;
  const float* bias;
};

/// Converts the sums of `rows` values around `shift` to sums around `origin`, and adds them to
/// total[0 .. width), Σ (x − origin), and total[width .. 2 · width), Σ (x − origin)².
void AddToTotals(int64_t rows, int64_t width, const float* shift, const float* origin,
                 const float* sum, const float* squares, double* total);
/// Adds two sums without conversion.
void AddToTotals(int64_t width, const float* sum, const float* products, double* total);

/// Mean and biased variance of `rows` values, from their totals around `origin`.
void FindStatistics(const double* total, const float* origin, int64_t rows, int64_t width,
                    float* mean, float* var);
/// The factors of BatchNormAffine. scale may be null.
void FindFactors(const float* var, const float* scale, double epsilon, int64_t channels,
                 float* factor);
/// dscale, dbias, and the constants of dx (see GradientRows), from the totals of g and g · (x −
/// mean).
void FindSlopes(const double* total, const float* var, const float* factor, double epsilon,
                int64_t rows, int64_t width, float* dscale, float* dbias, float* constant,
                float* slope);

/// Makes streamed results visible: must precede the reads of another thread.
void StreamFence();

// T, the element type, is float or BFloat16; all computation is in float32.
//
// With `stream`, results are written past the caches. Results larger than the caches are evicted
// before they are read, and full lines need not be read before they are written. Addresses and
// widths must then be multiples of 16 bytes.

/// The loops for one instruction set. Their results are the same for all.
template <class T>
struct BatchNormLoops {
  /// Adds Σ (x − shift) to `sum` and Σ (x − shift)² to `squares`, for each channel.
  void (*add_deviations)(const T* x, int64_t rows, int64_t width, const float* shift, float* sum,
                         float* squares);
  /// y = bn(x), plus `add` if it is not null, then the activation, which with `add` is ReLU or
  /// none. y may be x or add.
  void (*normalize)(const T* x, const T* add, int64_t rows, int64_t width, const AffineRow& row,
                    const Activation& activation, T* y, bool stream);
  /// Adds Σ g and Σ g · (x − mean) for each channel, where g is dy times the activation's slope: at
  /// y if that is not null, which is for ReLU only, else at bn(x). If `slopes` is not null, writes
  /// g there; it may be dy.
  void (*add_gradients)(const Activation& activation, const T* dy, const T* x, const T* y,
                        int64_t rows, int64_t width, const AffineRow& row, float* sum,
                        float* products, T* slopes);
  /// Like add_gradients for ReLU with y, and writes g to `dadd`, which may be dy. If dy2 is not
  /// null, the gradient is dy + dy2, rounded to T.
  void (*add_gradients_of_sum)(const T* dy, const T* dy2, const T* x, const T* y, int64_t rows,
                               int64_t width, const float* mean, float* sum, float* products,
                               T* dadd, bool stream);
  /// dx = factor · g − constant − slope · (x − mean). dx may be dy or x.
  void (*gradient)(const Activation& activation, const T* dy, const T* x, const T* y, int64_t rows,
                   int64_t width, const AffineRow& row, const float* constant, const float* slope,
                   T* dx, bool stream);
};

/// Those of the highest instruction set that is allowed.
template <class T>
const BatchNormLoops<T>& BatchNormLoopsOfCpu();
/// Those of AVX2 and AVX-512.
template <class T>
const BatchNormLoops<T>& BatchNormLoopsAvx2();
template <class T>
const BatchNormLoops<T>& BatchNormLoopsAvx512();

}  // namespace singa::cpu
