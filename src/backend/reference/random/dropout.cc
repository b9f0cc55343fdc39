// Dropout with a mask from the Philox sequence.

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/philox_fill.h"
#include "model/operation/random/spec.h"

namespace singa::reference {

namespace {

template <class T>
SINGA_MULTI_ISA void Drop(const T* x, const uint32_t* words, uint32_t threshold,
                          ComputeType<T> scale, int64_t n, T* y, uint8_t* mask) {
  using C = ComputeType<T>;
  for (int64_t i = 0; i < n; ++i) {
    const bool keep = words[i] >= threshold;
    y[i] = Convert<T>(keep ? Convert<C>(x[i]) * scale : C(0));
    mask[i] = keep;
  }
}

template <class T>
SINGA_MULTI_ISA void Mask(const T* dy, const uint8_t* mask, ComputeType<T> scale, int64_t n,
                          T* dx) {
  using C = ComputeType<T>;
  for (int64_t i = 0; i < n; ++i) dx[i] = Convert<T>(mask[i] ? Convert<C>(dy[i]) * scale : C(0));
}

void Run(const DropoutSpec& spec, const Execution& execution) {
  const Scalars& s = execution.scalars;
  const int64_t n = execution.inputs[0].size();
  const auto threshold = static_cast<uint32_t>(s.v[0] * 0x1p32);  // ratio < 1
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* x = execution.in<T>(0);
    T* y = execution.out<T>(0);
    auto* mask = execution.out<uint8_t>(1);
    const auto scale = static_cast<ComputeType<T>>(1 / (1 - s.v[0]));
    ParallelFor(n, kParallelGrain / 4, [&](int64_t begin, int64_t end) {
      uint32_t words[kRandomChunk];
      for (int64_t at = begin; at < end; at += kRandomChunk) {
        const int64_t count = std::min(kRandomChunk, end - at);
        PhiloxFill(s.seed, s.offset + static_cast<uint64_t>(spec.skip + at), count, words);
        Drop(x + at, words, threshold, scale, count, y + at, mask + at);
      }
    });
  });
}

void RunBackward(const DropoutBackwardSpec& spec, const Execution& execution) {
  const int64_t n = execution.inputs[0].size();
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* dy = execution.in<T>(0);
    const auto* mask = execution.in<uint8_t>(1);
    T* dx = execution.out<T>(0);
    const auto scale = static_cast<ComputeType<T>>(1 / (1 - execution.scalars.v[0]));
    ParallelFor(n, kParallelGrain, [&](int64_t begin, int64_t end) {
      Mask(dy + begin, mask + begin, scale, end - begin, dx + begin);
    });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<DropoutSpec, Run>();
  RegisterReference<DropoutBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
