// The loops for any processor, and the choice between them and those of its instruction set.

#define SINGA_TARGET

#include "backend/cpu/norm/batchnorm_loops.h"

#include <cmath>

#include "backend/cpu/norm/batchnorm_loops_inl.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"

namespace singa::cpu {

SINGA_MULTI_ISA
void AddToTotals(int64_t rows, int64_t width, const float* shift, const float* origin,
                 const float* sum, const float* squares, double* total) {
  const auto count = static_cast<double>(rows);
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    const double s = sum[c], step = static_cast<double>(shift[c]) - origin[c];
    total[c] += s + count * step;
    total[width + c] += squares[c] + step * (2 * s + count * step);
  }
}

SINGA_MULTI_ISA
void AddToTotals(int64_t width, const float* sum, const float* products, double* total) {
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    total[c] += sum[c];
    total[width + c] += products[c];
  }
}

SINGA_MULTI_ISA
void FindStatistics(const double* total, const float* origin, int64_t rows, int64_t width,
                    float* mean, float* var) {
  const auto n = static_cast<double>(rows);
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    const double step = total[c] / n, squares = total[width + c] / n - step * step;
    mean[c] = static_cast<float>(origin[c] + step);
    var[c] = static_cast<float>(squares < 0 ? 0 : squares);  // keeps NaN
  }
}

SINGA_MULTI_ISA
void FindFactors(const float* var, const float* scale, double epsilon, int64_t channels,
                 float* factor) {
  if (scale) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) factor[c] = BatchNormFactor(scale[c], var[c], epsilon);
  } else {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) factor[c] = BatchNormFactor(1.0f, var[c], epsilon);
  }
}

SINGA_MULTI_ISA
void FindSlopes(const double* total, const float* var, const float* factor, double epsilon,
                int64_t rows, int64_t width, float* dscale, float* dbias, float* constant,
                float* slope) {
  const auto n = static_cast<double>(rows);
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    const double inv_std = 1 / std::sqrt(var[c] + epsilon);
    const double product = total[width + c] * inv_std;
    dbias[c] = static_cast<float>(total[c]);
    dscale[c] = static_cast<float>(product);
    constant[c] = static_cast<float>(factor[c] * total[c] / n);
    slope[c] = static_cast<float>(factor[c] * inv_std * product / n);
  }
}

void StreamFence() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

template <class T>
const BatchNormLoops<T>& BatchNormLoopsOfCpu() {
#ifdef SINGA_HAS_MULTI_ISA
  const InstructionSet set = AllowedInstructionSet();
  if (set >= InstructionSet::kAvx512) return BatchNormLoopsAvx512<T>();
  if (set >= InstructionSet::kAvx2) return BatchNormLoopsAvx2<T>();
  return kLoops<T>;
#elif defined(__aarch64__)
  return kLoops<T, 8>;  // the width of its blocks
#else
  return kLoops<T, 16>;
#endif
}
template const BatchNormLoops<float>& BatchNormLoopsOfCpu();
template const BatchNormLoops<BFloat16>& BatchNormLoopsOfCpu();

}  // namespace singa::cpu
