#include "backend/cpu/relu.h"

#include "core/device/parallel.h"

namespace singa::cpu {
namespace {

SINGA_MULTI_ISA void RectifyFloats(float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] <= 0.0f ? 0.0f : y[i];
}

// Works on the bits of a bfloat16: clears those from -0 to -infinity. Larger bits are NaN.
SINGA_MULTI_ISA void RectifyBFloats(uint16_t* y, int64_t n) {
  constexpr uint16_t kSign = 0x8000, kInfinity = 0x7f80;
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<uint16_t>(y[i] - kSign) <= kInfinity ? uint16_t{0} : y[i];
}

}  // namespace

void Rectify(void* y, int64_t bytes, DType dtype) {
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  ParallelFor(bytes / size, kParallelGrain, [&](int64_t begin, int64_t end) {
    char* first = static_cast<char*>(y) + begin * size;
    if (dtype == kFloat32)
      RectifyFloats(reinterpret_cast<float*>(first), end - begin);
    else
      RectifyBFloats(reinterpret_cast<uint16_t*>(first), end - begin);
  });
}

}  // namespace singa::cpu
