#include "backend/cpu/activate.h"

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/formula/activation.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

template <ActivationKind kKind, class T>
SINGA_MULTI_ISA void ActivateElements(const Activation& activation, T* y, int64_t n) {
  const formula::FastActivation<kKind> f(activation);
  for (int64_t i = 0; i < n; ++i) y[i] = Convert<T>(f(Convert<float>(y[i])));
}

// Works on the bits of a bfloat16: clears those from -0 to -infinity. Larger bits are NaN.
SINGA_MULTI_ISA void RectifyBFloats(uint16_t* y, int64_t n) {
  constexpr uint16_t kSign = 0x8000, kInfinity = 0x7f80;
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<uint16_t>(y[i] - kSign) <= kInfinity ? uint16_t{0} : y[i];
}

template <class T>
void ActivateRange(const Activation& activation, T* y, int64_t n) {
  switch (activation.kind) {
    case ActivationKind::kRelu:
      if constexpr (sizeof(T) == sizeof(uint16_t))
        return RectifyBFloats(reinterpret_cast<uint16_t*>(y), n);
      return ActivateElements<ActivationKind::kRelu>(activation, y, n);
    case ActivationKind::kClip:
      return ActivateElements<ActivationKind::kClip>(activation, y, n);
    case ActivationKind::kHardSwish:
      return ActivateElements<ActivationKind::kHardSwish>(activation, y, n);
    case ActivationKind::kSilu:
      return ActivateElements<ActivationKind::kSilu>(activation, y, n);
    default:
      return;
  }
}

}  // namespace

void Activate(const Activation& activation, void* y, int64_t bytes, DType dtype) {
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  ParallelFor(bytes / size, kParallelGrain, [&](int64_t begin, int64_t end) {
    if (dtype == kFloat32)
      ActivateRange(activation, static_cast<float*>(y) + begin, end - begin);
    else
      ActivateRange(activation, static_cast<BFloat16*>(y) + begin, end - begin);
  });
}

}  // namespace singa::cpu
