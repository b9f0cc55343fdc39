// Pooling. The inner loops run over neighbouring windows of a row, one tap at a time, so that they
// vectorise. Windows of an adaptive pooling are at different distances; they come one by one. One
// thread computes an image, so sums have a fixed order.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/pooling/spec.h"
#include "model/operation/pooling/windows.h"

namespace singa::reference {
namespace {

/// Calls body(stride), with the common strides as compile-time constants.
template <class Body>
SINGA_INLINE void WithStride(int64_t stride, const Body& body) {
  switch (stride) {
    case 1:
      return body(std::integral_constant<int64_t, 1>());
    case 2:
      return body(std::integral_constant<int64_t, 2>());
    default:
      return body(stride);
  }
}

/// The best values so far of a row of windows, and their distances from tap 0 of the window.
template <class C>
struct BestRow {
  explicit BestRow(int64_t windows) : value(windows), distance(windows) {}
  std::vector<C> value;
  std::vector<int32_t> distance;
};

/// Compares one tap with the best of `n` windows. Taps come in reverse order, so that the first of
/// equal values wins.
template <class T, class C, class Stride>
SINGA_INLINE void OfferTap(const T* __restrict in, Stride stride, int64_t n, int32_t distance,
                           C* __restrict best, int32_t* __restrict best_distance) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(in[i * stride]);
    const bool better = (value >= best[i]) | (value != value);
    best[i] = better ? value : best[i];
    best_distance[i] = better ? distance : best_distance[i];
  }
}

/// Calls body(first window, number of windows, position of tap k of the first, stride) for the
/// windows of a row that have a tap k inside the input: for all at once, or for one at a time where
/// their distances differ.
template <class Body>
SINGA_INLINE void ForWindows(const WindowAxis& columns, int64_t k, const Body& body) {
  if (columns.regular()) {
    const auto [first, last] = columns.inside(k);
    if (first >= last) return;
    const int64_t at = columns.position(first, k);
    return WithStride(columns.stride(),
                      [&, first = first, last = last](auto stride)
                          SINGA_INLINE_LAMBDA { body(first, last - first, at, stride); });
  }
  for (int64_t o = 0; o < columns.windows(); ++o)
    if (k < columns.taps(o).last)
      body(o, int64_t{1}, columns.position(o, k), std::integral_constant<int64_t, 1>());
}

/// Computes y and `position` of one image; either may be null.
template <class T>
SINGA_MULTI_ISA void MaxImage(const PoolWindows& windows, const T* x, T* y, int32_t* position,
                              BestRow<ComputeType<T>>* row) {
  using C = ComputeType<T>;
  const WindowAxis &planes = windows.planes, &rows = windows.rows, &columns = windows.columns;
  const int64_t count = columns.windows();
  C* best = row->value.data();
  int32_t* best_distance = row->distance.data();
  for (int64_t o = 0; o < planes.windows() * rows.windows(); ++o) {
    const int64_t od = o / rows.windows(), oh = o % rows.windows();
    std::fill_n(best, count, -std::numeric_limits<C>::infinity());
    std::fill_n(best_distance, count, -1);
    for (int64_t kd = planes.taps(od).last - 1; kd >= planes.taps(od).first; --kd) {
      for (int64_t kh = rows.taps(oh).last - 1; kh >= rows.taps(oh).first; --kh) {
        const T* in =
            x + (planes.position(od, kd) * rows.size() + rows.position(oh, kh)) * columns.size();
        const int64_t down =
            (kd * planes.dilation() * rows.size() + kh * rows.dilation()) * columns.size();
        for (int64_t kw = columns.kernel() - 1; kw >= 0; --kw) {
          const auto distance = static_cast<int32_t>(down + kw * columns.dilation());
          ForWindows(columns, kw,
                     [&](int64_t first, int64_t n, int64_t at, auto stride) SINGA_INLINE_LAMBDA {
                       OfferTap(in + at, stride, n, distance, best + first, best_distance + first);
                     });
        }
      }
    }
    if (y)
      for (int64_t i = 0; i < count; ++i) y[o * count + i] = Convert<T>(best[i]);
    if (position) {
      const int64_t top = (planes.start(od) * rows.size() + rows.start(oh)) * columns.size();
      for (int64_t i = 0; i < count; ++i)
        position[o * count + i] =
            best_distance[i] < 0 ? -1
                                 : static_cast<int32_t>(top + columns.start(i) + best_distance[i]);
    }
  }
}

/// Calls body(row of the image, kw) for all taps of the windows of row (od, oh), where kw is the
/// last axis' tap.
template <class Body>
SINGA_INLINE void ForTaps(const PoolWindows& windows, int64_t od, int64_t oh, const Body& body) {
  const WindowAxis &planes = windows.planes, &rows = windows.rows, &columns = windows.columns;
  for (int64_t kd = planes.taps(od).first; kd < planes.taps(od).last; ++kd)
    for (int64_t kh = rows.taps(oh).first; kh < rows.taps(oh).last; ++kh)
      for (int64_t kw = 0; kw < columns.kernel(); ++kw)
        body(planes.position(od, kd) * rows.size() + rows.position(oh, kh), kw);
}

/// The maxima of one image of bytes; of nothing it is the least number of the type.
template <class T>
SINGA_MULTI_ISA void MaxOfBytes(const PoolWindows& windows, const T* x, T* y) {
  const WindowAxis &planes = windows.planes, &rows = windows.rows, &columns = windows.columns;
  const int64_t count = columns.windows();
  for (int64_t o = 0; o < planes.windows() * rows.windows(); ++o, y += count) {
    std::fill_n(y, count, std::numeric_limits<T>::lowest());
    ForTaps(windows, o / rows.windows(), o % rows.windows(),
            [&](int64_t row, int64_t kw) SINGA_INLINE_LAMBDA {
              const T* in = x + row * columns.size();
              ForWindows(columns, kw,
                         [&](int64_t first, int64_t n, int64_t at, auto stride)
                             SINGA_INLINE_LAMBDA {
                               for (int64_t i = 0; i < n; ++i)
                                 y[first + i] = std::max(y[first + i], in[at + i * stride]);
                             });
            });
  }
}

template <class T>
SINGA_MULTI_ISA void AverageImage(const PoolWindows& windows, const T* x, T* y, double* sum) {
  const WindowAxis &planes = windows.planes, &rows = windows.rows, &columns = windows.columns;
  const int64_t count = columns.windows();
  for (int64_t o = 0; o < planes.windows() * rows.windows(); ++o) {
    const int64_t od = o / rows.windows(), oh = o % rows.windows();
    std::fill_n(sum, count, 0.0);
    ForTaps(windows, od, oh, [&](int64_t row, int64_t kw) SINGA_INLINE_LAMBDA {
      const T* in = x + row * columns.size();
      ForWindows(columns, kw,
                 [&](int64_t first, int64_t n, int64_t at, auto stride) SINGA_INLINE_LAMBDA {
                   for (int64_t i = 0; i < n; ++i)
                     sum[first + i] += Convert<double>(in[at + i * stride]);
                 });
    });
    const int64_t divisor = planes.divisor(od) * rows.divisor(oh);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t all = divisor * columns.divisor(i);
      y[o * count + i] = Convert<T>(all > 0 ? sum[i] / static_cast<double>(all) : 0.0);
    }
  }
}

/// Adds the gradients of one image to `sum`, which is zero initially.
template <class T, class C>
SINGA_MULTI_ISA void MaxImageBackward(const PoolWindows& windows, const T* dy,
                                      const int32_t* position, C* sum) {
  const auto input = static_cast<uint64_t>(windows.input());
  for (int64_t o = 0; o < windows.output(); ++o) {
    const auto at = static_cast<uint64_t>(static_cast<int64_t>(position[o]));
    if (at < input) sum[at] += Convert<C>(dy[o]);  // an empty window has -1
  }
}

template <class T, class C>
SINGA_MULTI_ISA void AverageImageBackward(const PoolWindows& windows, const T* dy, C* sum,
                                          C* share) {
  const WindowAxis &planes = windows.planes, &rows = windows.rows, &columns = windows.columns;
  const int64_t count = columns.windows();
  for (int64_t o = 0; o < planes.windows() * rows.windows(); ++o) {
    const int64_t od = o / rows.windows(), oh = o % rows.windows();
    const int64_t divisor = planes.divisor(od) * rows.divisor(oh);
    for (int64_t i = 0; i < count; ++i)
      share[i] = Convert<C>(dy[o * count + i]) /
                 static_cast<C>(std::max<int64_t>(divisor * columns.divisor(i), 1));
    ForTaps(windows, od, oh, [&](int64_t row, int64_t kw) SINGA_INLINE_LAMBDA {
      C* out = sum + row * columns.size();
      ForWindows(columns, kw,
                 [&](int64_t first, int64_t n, int64_t at, auto stride) SINGA_INLINE_LAMBDA {
                   for (int64_t i = 0; i < n; ++i) out[at + i * stride] += share[first + i];
                 });
    });
  }
}

int64_t Images(const Recorder& geometry) { return geometry.batchsize * geometry.in_channels; }

int64_t Grain(const PoolWindows& windows) {
  const int64_t work = windows.input() + windows.output() * windows.taps();
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

template <class T>
void ForwardBytes(const PoolingForwardSpec& spec, const Execution& execution) {
  const PoolWindows windows(spec.geometry, spec.mode);
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  ParallelFor(Images(spec.geometry), Grain(windows), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      MaxOfBytes(windows, x + i * windows.input(), y + i * windows.output());
  });
}

void RunForward(const PoolingForwardSpec& spec, const Execution& execution) {
  if (spec.dtype == kInt8) return ForwardBytes<int8_t>(spec, execution);
  if (spec.dtype == kUInt8) return ForwardBytes<uint8_t>(spec, execution);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const PoolingBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<PoolingForwardSpec, RunForward>();
  RegisterReference<PoolingBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::reference
