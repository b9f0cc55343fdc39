// Interpolation. Each element of the result is a sum over the positions that TapTable names along
// the axes, in double.

#include <algorithm>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/tap_table.h"

namespace singa::reference {
namespace {

constexpr int64_t kChunk = 256;

template <class T>
void RunTyped(const InterpolationFields& spec, bool backward, const Execution& execution) {
  const TapTable taps[] = {{spec, 0, backward}, {spec, 1, backward}, {spec, 2, backward}};
  int64_t lengths[kMostInterpolated];  // of the argument
  for (int i = 0; i < kMostInterpolated; ++i)
    lengths[i] = backward ? spec.axis(i).out : spec.axis(i).in;
  const int64_t inner = spec.inner();
  const int64_t results = taps[0].size() * taps[1].size() * taps[2].size();
  const T* in = execution.in<T>(0);
  T* out = execution.out<T>(0);
  const auto position = [&](int64_t i) {
    const int64_t outer = i / results, row = i % results / taps[2].size();
    const T* from = in + outer * lengths[0] * lengths[1] * lengths[2] * inner;
    for (int64_t begin = 0; begin < inner; begin += kChunk) {
      const int64_t n = std::min(kChunk, inner - begin);
      double sum[kChunk] = {};
      for (const auto& a : taps[0][row / taps[1].size()])
        for (const auto& b : taps[1][row % taps[1].size()])
          for (const auto& c : taps[2][i % taps[2].size()]) {
            const double weight = a.weight * b.weight * c.weight;
            const T* x = from + ((a.at * lengths[1] + b.at) * lengths[2] + c.at) * inner + begin;
            for (int64_t j = 0; j < n; ++j)
              sum[j] += weight * static_cast<double>(Convert<ComputeType<T>>(x[j]));
          }
      for (int64_t j = 0; j < n; ++j) out[i * inner + begin + j] = Convert<T>(sum[j]);
    }
  };
  ParallelFor(spec.outer() * results, kParallelGrain / 8 / std::max<int64_t>(1, inner),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) position(i);
              });
}

void Run(const InterpolationFields& spec, const char* op, bool backward,
         const Execution& execution) {
  if (execution.outputs[0].size() == 0) return;
  SwitchFloat(spec.dtype, op, [&]<class T>() { RunTyped<T>(spec, backward, execution); });
}

void RunForward(const InterpolateSpec& spec, const Execution& execution) {
  Run(spec, spec.op(), false, execution);
}
void RunBackward(const InterpolateBackwardSpec& spec, const Execution& execution) {
  Run(spec, spec.op(), true, execution);
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<InterpolateSpec, RunForward>();
  RegisterReference<InterpolateBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
