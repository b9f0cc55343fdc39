// Pooling: one loop over the windows forward, and one over the input's positions backward, which
// adds up the windows that a position lies in. Nothing is scattered, so no two threads meet and
// every sum has one order.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/reference/dtype_switch.h"
#include "backend/reference/parallel.h"
#include "backend/reference/register.h"
#include "model/operation/kernel.h"
#include "model/operation/pooling_spec.h"

namespace singa::reference {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b > 0); }

/// Which taps of which window lie where, along one axis. Tap k of window o reads position
/// o · stride − pad + k · dilation.
struct Axis {
  Axis(int64_t size, int64_t windows, int64_t kernel, int64_t stride, int64_t pad,
       int64_t pad_after, int64_t dilation, bool count_pad)
      : size(size), windows(windows), dilation(dilation) {
    start.resize(windows);
    first_tap.resize(windows);
    last_tap.resize(windows);
    divisor.resize(windows);
    for (int64_t o = 0; o < windows; ++o) {
      const int64_t at = o * stride - pad;
      const auto taps_before = [&](int64_t end) {
        return std::clamp<int64_t>(CeilDivide(end - at, dilation), 0, kernel);
      };
      start[o] = at;
      first_tap[o] = taps_before(0);
      last_tap[o] = taps_before(size);
      // Windows never start before the padding, but with ceil_mode they may end behind it.
      divisor[o] = count_pad ? taps_before(size + pad_after) : last_tap[o] - first_tap[o];
    }
    first_window.resize(size);
    last_window.resize(size);
    const int64_t reach = dilation * (kernel - 1);
    for (int64_t i = 0; i < size; ++i) {
      first_window[i] = std::clamp<int64_t>(CeilDivide(i + pad - reach, stride), 0, windows);
      last_window[i] = std::min((i + pad) / stride + 1, windows);
    }
  }
  /// Whether a tap of window o, one of [first_window[i], last_window[i]), reads position i.
  bool Reads(int64_t o, int64_t i) const { return (i - start[o]) % dilation == 0; }

  int64_t size, windows, dilation;
  // Per window: position of tap 0, the taps [first, last) that lie inside the input, and how many
  // elements an average counts.
  std::vector<int64_t> start, first_tap, last_tap, divisor;
  // Per position: the windows [first, last) within whose span it lies.
  std::vector<int64_t> first_window, last_window;
};

struct Image {
  Image(const Recorder& r, PoolMode mode)
      : rows(r.height, r.conv_height, r.kernel_h, r.stride_h, r.pad_top, r.pad_bottom, r.dilation_h,
             mode == PoolMode::kAverageIncludePad),
        columns(r.width, r.conv_width, r.kernel_w, r.stride_w, r.pad_left, r.pad_right,
                r.dilation_w, mode == PoolMode::kAverageIncludePad),
        count(r.batchsize * r.in_channels),
        input(r.height * r.width),
        output(r.conv_height * r.conv_width),
        grain(kParallelGrain / (output * r.kernel_h * r.kernel_w + input) + 1) {}
  Axis rows, columns;
  int64_t count;          // images: batch times channels
  int64_t input, output;  // elements of one
  int64_t grain;
};

/// y and `position` of one image; either may be null.
template <class T>
SINGA_MULTI_ISA void MaxImage(const Image& image, const T* x, T* y, int32_t* position) {
  using C = ComputeType<T>;
  const Axis& rows = image.rows;
  const Axis& columns = image.columns;
  for (int64_t oh = 0; oh < rows.windows; ++oh) {
    for (int64_t ow = 0; ow < columns.windows; ++ow) {
      C best = -std::numeric_limits<C>::infinity();
      int64_t at = -1;
      for (int64_t kh = rows.first_tap[oh]; kh < rows.last_tap[oh]; ++kh) {
        const int64_t row = (rows.start[oh] + kh * rows.dilation) * columns.size;
        for (int64_t kw = columns.first_tap[ow]; kw < columns.last_tap[ow]; ++kw) {
          const int64_t i = row + columns.start[ow] + kw * columns.dilation;
          const C value = Convert<C>(x[i]);
          if (value > best || value != value || at < 0) {
            best = value;
            at = i;
          }
        }
      }
      const int64_t o = oh * columns.windows + ow;
      if (y) y[o] = Convert<T>(best);
      if (position) position[o] = static_cast<int32_t>(at);
    }
  }
}

template <class T>
SINGA_MULTI_ISA void AverageImage(const Image& image, const T* x, T* y) {
  const Axis& rows = image.rows;
  const Axis& columns = image.columns;
  for (int64_t oh = 0; oh < rows.windows; ++oh) {
    for (int64_t ow = 0; ow < columns.windows; ++ow) {
      double sum = 0;
      const int64_t taps = columns.last_tap[ow] - columns.first_tap[ow];
      const int64_t left = columns.start[ow] + columns.first_tap[ow] * columns.dilation;
      for (int64_t kh = rows.first_tap[oh]; kh < rows.last_tap[oh]; ++kh) {
        const T* row = x + (rows.start[oh] + kh * rows.dilation) * columns.size + left;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < taps; ++k) sum += Convert<double>(row[k * columns.dilation]);
      }
      const int64_t divisor = rows.divisor[oh] * columns.divisor[ow];
      y[oh * columns.windows + ow] =
          Convert<T>(divisor > 0 ? sum / static_cast<double>(divisor) : 0.0);
    }
  }
}

template <class T>
SINGA_MULTI_ISA void MaxImageBackward(const Image& image, const T* dy, const int32_t* position,
                                      T* dx) {
  const Axis& rows = image.rows;
  const Axis& columns = image.columns;
  for (int64_t h = 0; h < rows.size; ++h) {
    for (int64_t w = 0; w < columns.size; ++w) {
      const int64_t i = h * columns.size + w;
      double sum = 0;
      for (int64_t oh = rows.first_window[h]; oh < rows.last_window[h]; ++oh) {
        for (int64_t ow = columns.first_window[w]; ow < columns.last_window[w]; ++ow) {
          const int64_t o = oh * columns.windows + ow;
          if (position[o] == i) sum += Convert<double>(dy[o]);
        }
      }
      dx[i] = Convert<T>(sum);
    }
  }
}

template <class T>
SINGA_MULTI_ISA void AverageImageBackward(const Image& image, const T* dy, T* dx) {
  const Axis& rows = image.rows;
  const Axis& columns = image.columns;
  for (int64_t h = 0; h < rows.size; ++h) {
    for (int64_t w = 0; w < columns.size; ++w) {
      double sum = 0;
      for (int64_t oh = rows.first_window[h]; oh < rows.last_window[h]; ++oh) {
        if (!rows.Reads(oh, h)) continue;
        for (int64_t ow = columns.first_window[w]; ow < columns.last_window[w]; ++ow) {
          if (!columns.Reads(ow, w)) continue;
          sum += Convert<double>(dy[oh * columns.windows + ow]) /
                 static_cast<double>(rows.divisor[oh] * columns.divisor[ow]);
        }
      }
      dx[h * columns.size + w] = Convert<T>(sum);
    }
  }
}

template <class T>
void Forward(const PoolingForwardSpec& spec, const Execution& execution) {
  const Image image(spec.geometry, spec.mode);
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  int32_t* position = execution.outputs.size() > 1 && !execution.outputs[1].empty()
                          ? execution.out<int32_t>(1)
                          : nullptr;
  ParallelFor(image.count, image.grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* in = x + i * image.input;
      T* out = y + i * image.output;
      if (spec.mode == PoolMode::kMax) {
        MaxImage(image, in, out, position ? position + i * image.output : nullptr);
      } else {
        AverageImage(image, in, out);
      }
    }
  });
}

bool HasPositions(const PoolingBackwardSpec& spec) { return spec.saved == SavedForm::kCommon; }

template <class T>
void Backward(const PoolingBackwardSpec& spec, const Execution& execution) {
  const Image image(spec.geometry, spec.mode);
  const T* dy = execution.in<T>(0);
  T* dx = execution.out<T>(0);
  ParallelFor(image.count, image.grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* gradient = dy + i * image.output;
      if (spec.mode != PoolMode::kMax) {
        AverageImageBackward(image, gradient, dx + i * image.input);
        continue;
      }
      const int32_t* position;
      if (HasPositions(spec)) {
        position = execution.in<int32_t>(2) + i * image.output;
      } else {
        int32_t* found = static_cast<int32_t*>(execution.workspace) + i * image.output;
        MaxImage<T>(image, execution.in<T>(1) + i * image.input, nullptr, found);
        position = found;
      }
      MaxImageBackward(image, gradient, position, dx + i * image.input);
    }
  });
}

size_t BackwardWorkspace(const PoolingBackwardSpec& spec) {
  if (spec.mode != PoolMode::kMax || HasPositions(spec)) return 0;
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
