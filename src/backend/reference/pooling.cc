// Pooling. The inner loops run over neighbouring windows of a row, for one tap after the other, so
// that they vectorise. An image is one thread's: sums have one order.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "backend/reference/register.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "model/operation/kernel.h"
#include "model/operation/pooling_spec.h"
#include "model/operation/pooling_windows.h"

namespace singa::reference {
namespace {

/// Calls body(stride) with the stride as a constant where it is a usual one.
template <class Body>
inline __attribute__((always_inline)) void WithStride(int64_t stride, const Body& body) {
  switch (stride) {
    case 1:
      return body(std::integral_constant<int64_t, 1>());
    case 2:
      return body(std::integral_constant<int64_t, 2>());
    default:
      return body(stride);
  }
}

/// Where a row of windows keeps its best values so far, and how far from the window's tap 0 they
/// lie.
template <class C>
struct BestRow {
  explicit BestRow(int64_t windows) : value(windows), distance(windows) {}
  std::vector<C> value;
  std::vector<int32_t> distance;
};

/// Offers one tap to `n` windows. Taps come from the last to the first, so that the first of equal
/// values stays.
template <class T, class C, class Stride>
inline __attribute__((always_inline)) void OfferTap(const T* __restrict in, Stride stride,
                                                    int64_t n, int32_t distance, C* __restrict best,
                                                    int32_t* __restrict best_distance) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(in[i * stride]);
    const bool better = (value >= best[i]) | (value != value);
    best[i] = better ? value : best[i];
    best_distance[i] = better ? distance : best_distance[i];
  }
}

/// y and `position` of one image; either may be null.
template <class T>
SINGA_MULTI_ISA void MaxImage(const PoolWindows& windows, const T* x, T* y, int32_t* position,
                              BestRow<ComputeType<T>>* row) {
  using C = ComputeType<T>;
  const WindowAxis& rows = windows.rows;
  const WindowAxis& columns = windows.columns;
  const int64_t count = columns.windows();
  C* best = row->value.data();
  int32_t* best_distance = row->distance.data();
  for (int64_t oh = 0; oh < rows.windows(); ++oh) {
    std::fill_n(best, count, -std::numeric_limits<C>::infinity());
    std::fill_n(best_distance, count, -1);
    for (int64_t kh = rows.taps(oh).last - 1; kh >= rows.taps(oh).first; --kh) {
      for (int64_t kw = columns.kernel() - 1; kw >= 0; --kw) {
        const auto [first, last] = columns.inside(kw);
        const T* in = x + rows.position(oh, kh) * columns.size() + columns.position(first, kw);
        const int64_t distance = (rows.position(0, kh) - rows.start(0)) * columns.size() +
                                 columns.position(0, kw) - columns.start(0);
        WithStride(columns.stride(), [&, first = first, last = last](auto stride) {
          OfferTap(in, stride, last - first, static_cast<int32_t>(distance), best + first,
                   best_distance + first);
        });
      }
    }
    if (y)
      for (int64_t i = 0; i < count; ++i) y[oh * count + i] = Convert<T>(best[i]);
    if (position) {
      const int64_t top = rows.start(oh) * columns.size();
      for (int64_t i = 0; i < count; ++i)
        position[oh * count + i] =
            best_distance[i] < 0 ? -1
                                 : static_cast<int32_t>(top + columns.start(i) + best_distance[i]);
    }
  }
}

template <class T>
SINGA_MULTI_ISA void AverageImage(const PoolWindows& windows, const T* x, T* y, double* sum) {
  const WindowAxis& rows = windows.rows;
  const WindowAxis& columns = windows.columns;
  const int64_t count = columns.windows();
  for (int64_t oh = 0; oh < rows.windows(); ++oh) {
    std::fill_n(sum, count, 0.0);
    for (int64_t kh = rows.taps(oh).first; kh < rows.taps(oh).last; ++kh) {
      for (int64_t kw = 0; kw < columns.kernel(); ++kw) {
        const auto [first, last] = columns.inside(kw);
        const T* in = x + rows.position(oh, kh) * columns.size() + columns.position(first, kw);
        WithStride(columns.stride(), [&, first = first, last = last](auto stride) {
          for (int64_t i = 0; i < last - first; ++i)
            sum[first + i] += Convert<double>(in[i * stride]);
        });
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t divisor = rows.divisor(oh) * columns.divisor(i);
      y[oh * count + i] = Convert<T>(divisor > 0 ? sum[i] / static_cast<double>(divisor) : 0.0);
    }
  }
}

/// Adds the gradients of one image to `sum`, which is zero.
template <class T, class C>
SINGA_MULTI_ISA void MaxImageBackward(const PoolWindows& windows, const T* dy,
                                      const int32_t* position, C* sum) {
  const auto input = static_cast<uint64_t>(windows.input());
  for (int64_t o = 0; o < windows.output(); ++o) {
    const auto at = static_cast<uint64_t>(static_cast<int64_t>(position[o]));
    if (at < input) sum[at] += Convert<C>(dy[o]);  // a window that saw nothing has -1
  }
}

template <class T, class C>
SINGA_MULTI_ISA void AverageImageBackward(const PoolWindows& windows, const T* dy, C* sum,
                                          C* share) {
  const WindowAxis& rows = windows.rows;
  const WindowAxis& columns = windows.columns;
  const int64_t count = columns.windows();
  for (int64_t oh = 0; oh < rows.windows(); ++oh) {
    for (int64_t i = 0; i < count; ++i)
      share[i] = Convert<C>(dy[oh * count + i]) /
                 static_cast<C>(std::max<int64_t>(rows.divisor(oh) * columns.divisor(i), 1));
    for (int64_t kh = rows.taps(oh).first; kh < rows.taps(oh).last; ++kh) {
      for (int64_t kw = 0; kw < columns.kernel(); ++kw) {
        const auto [first, last] = columns.inside(kw);
        C* out = sum + rows.position(oh, kh) * columns.size() + columns.position(first, kw);
        WithStride(columns.stride(), [&, first = first, last = last](auto stride) {
          for (int64_t i = 0; i < last - first; ++i) out[i * stride] += share[first + i];
        });
      }
    }
  }
}

int64_t Images(const Recorder& geometry) { return geometry.batchsize * geometry.in_channels; }

int64_t Grain(const PoolWindows& windows) {
  const int64_t work =
      windows.input() + windows.output() * windows.rows.kernel() * windows.columns.kernel();
  return kParallelGrain / (work + 1) + 1;
}

template <class T>
void Forward(const PoolingForwardSpec& spec, const Execution& execution) {
  const PoolWindows windows(spec.geometry, spec.mode);
  const int64_t input = windows.input(), output = windows.output();
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  int32_t* position = spec.save ? execution.out<int32_t>(1) : nullptr;
  ParallelFor(Images(spec.geometry), Grain(windows), [&](int64_t begin, int64_t end) {
    BestRow<ComputeType<T>> best(windows.columns.windows());
    std::vector<double> sum(windows.columns.windows());
    for (int64_t i = begin; i < end; ++i) {
      if (spec.mode == PoolMode::kMax) {
        MaxImage(windows, x + i * input, y + i * output, position ? position + i * output : nullptr,
                 &best);
      } else {
        AverageImage(windows, x + i * input, y + i * output, sum.data());
      }
    }
  });
}

template <class T>
void Backward(const PoolingBackwardSpec& spec, const Execution& execution) {
  using C = ComputeType<T>;
  const PoolWindows windows(spec.geometry, spec.mode);
  const int64_t input = windows.input(), output = windows.output();
  const T* dy = execution.in<T>(0);
  T* dx = execution.out<T>(0);
  ParallelFor(Images(spec.geometry), Grain(windows), [&](int64_t begin, int64_t end) {
    BestRow<C> best(windows.columns.windows());
    std::vector<C> share(windows.columns.windows());
    std::vector<C> buffer(std::is_same_v<T, C> ? 0 : input);
    for (int64_t i = begin; i < end; ++i) {
      C* sum = buffer.data();
      if constexpr (std::is_same_v<T, C>) sum = dx + i * input;
      std::fill_n(sum, input, C(0));
      if (spec.mode != PoolMode::kMax) {
        AverageImageBackward(windows, dy + i * output, sum, share.data());
      } else if (spec.saved) {
        MaxImageBackward(windows, dy + i * output, execution.in<int32_t>(2) + i * output, sum);
      } else {
        int32_t* found = static_cast<int32_t*>(execution.workspace) + i * output;
        MaxImage<T>(windows, execution.in<T>(1) + i * input, nullptr, found, &best);
        MaxImageBackward(windows, dy + i * output, found, sum);
      }
      if constexpr (!std::is_same_v<T, C>)
        for (int64_t j = 0; j < input; ++j) dx[i * input + j] = Convert<T>(sum[j]);
    }
  });
}

size_t BackwardWorkspace(const PoolingBackwardSpec& spec) {
  if (spec.mode != PoolMode::kMax || spec.saved) return 0;
  return static_cast<size_t>(spec.geometry.output_shape().Count()) * sizeof(int32_t);
}

void RunForward(const PoolingForwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const PoolingBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

void RegisterPooling() {
  RegisterReference<PoolingForwardSpec, RunForward>();
  RegisterReference<PoolingBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::reference
