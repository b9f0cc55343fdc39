#include "backend/onednn/rectify.h"

#include "core/parallel.h"

namespace singa::onednn {
namespace {

SINGA_MULTI_ISA void RectifyFloats(float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] <= 0.0f ? 0.0f : y[i];
}

// bfloat16, by its bits: from -0 down to -infinity. What is above is NaN.
SINGA_MULTI_ISA void RectifyBFloats(uint16_t* y, int64_t n) {
  constexpr uint16_t kSign = 0x8000, kInfinity = 0x7f80;
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<uint16_t>(y[i] - kSign) <= kInfinity ? uint16_t{0} : y[i];
}

}  // namespace

void Rectify(const Tensor& y) {
  const bool wide = y.data_type() == kFloat32;
  const int64_t size = static_cast<int64_t>(SizeOf(y.data_type()));
  const int64_t count = (y.layout() ? static_cast<int64_t>(y.layout()->bytes()) : y.bytes()) / size;
  auto* data = static_cast<char*>(y.raw_data());
  ParallelFor(count, kParallelGrain, [&](int64_t begin, int64_t end) {
    char* first = data + begin * size;
    if (wide)
      RectifyFloats(reinterpret_cast<float*>(first), end - begin);
    else
      RectifyBFloats(reinterpret_cast<uint16_t*>(first), end - begin);
  });
}

}  // namespace singa::onednn
