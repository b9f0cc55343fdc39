// Products of quantized tensors in int32, and sums of quantized tensors in float32.

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/gemm.h"
#include "backend/reference/im2col.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/unary.h"
#include "model/operation/quantized/spec.h"

namespace singa::reference {
namespace {

/// `value` rounded to the nearest integer, halves to the even one, plus zero, in the range of T.
template <class T, class F>
T Quantized(F value, F zero) {
  constexpr F kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  F rounded = std::nearbyint(value) + zero;
  rounded = rounded > kLow ? rounded : kLow;  // NaN too
  rounded = rounded < kHigh ? rounded : kHigh;
  return static_cast<T>(static_cast<int32_t>(rounded));
}

template <class F>
decltype(auto) SwitchByte(DType dtype, F&& f) {
  if (dtype == kInt8) return f.template operator()<int8_t>();
  return f.template operator()<uint8_t>();
}

/// The arguments of a product behind x and W.
struct Rest {
  int32_t x_zero = 0;
  double y_zero = 0, y_scale = 1;
  const float* scale = nullptr;
  const float* bias = nullptr;

  Rest(const QuantizedFields& fields, const Execution& execution) {
    size_t next = 2;
    if (fields.has_x_zero) x_zero = execution.in<int32_t>(next++)[0];
    if (fields.has_scale()) scale = execution.in<float>(next++);
    if (fields.has_bias) bias = execution.in<float>(next++);
    if (fields.has_y_zero) y_zero = execution.in<int32_t>(next++)[0];
    if (fields.has_y_scale) y_scale = execution.in<float>(next)[0];
  }
};

/// Writes the results y[first + i] of the sums of n products. `channel(i)` is the output, which has
/// a scale and a bias.
template <class Channel>
void WriteResults(const QuantizedFields& fields, const Rest& rest, const uint32_t* sums, int64_t n,
                  const Channel& channel, const Execution& execution, int64_t first) {
  const auto value = [&](int64_t i) {
    const int64_t c = channel(i);
    const double sum = static_cast<int32_t>(sums[i]);
    const double y = sum * rest.scale[c] + (rest.bias ? rest.bias[c] : 0.0);
    if (fields.gelu) return formula::Unary(UnaryOp::kGelu, y, 0.0, 0.0);
    return fields.relu ? std::max(y, 0.0) : y;
  };
  if (fields.y_type == kInt32) {
    std::copy(sums, sums + n, execution.out<uint32_t>(0) + first);
  } else if (fields.y_type == kFloat32) {
    float* y = execution.out<float>(0) + first;
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(value(i));
  } else {
    SwitchByte(fields.y_type, [&]<class Y>() {
      Y* y = execution.out<Y>(0) + first;
      for (int64_t i = 0; i < n; ++i) y[i] = Quantized<Y>(value(i) / rest.y_scale, rest.y_zero);
    });
  }
}

/// sums[i] += (x[i·step] − zero)·w. Unsigned, since the sums may overflow.
template <class X>
SINGA_MULTI_ISA void AddProducts(const X* x, int64_t step, int64_t n, int32_t zero, int32_t w,
                                 uint32_t* sums) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<uint32_t>((x[i] - zero) * w);
  } else {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<uint32_t>((x[i * step] - zero) * w);
  }
}

/// One output of one image at a time.
void RunConv(const QuantizedConvSpec& spec, const Execution& execution) {
  const Recorder& g = spec.geometry;
  const Rest rest(spec, execution);
  const int64_t filters = g.out_channels / g.group, channels = g.in_channels / g.group;
  SwitchByte(spec.x_type, [&]<class X>() {
    ParallelItems(
        g.batchsize * g.out_channels, spec.threads, g.col_height * g.col_width,
        [&](int64_t item, int64_t slot) {
          const int64_t m = item % g.out_channels, n = item / g.out_channels;
          const X* image =
              execution.in<X>(0) + n * g.imagesize + m / filters * channels * g.pixels();
          const int8_t* w = execution.in<int8_t>(1) + m * g.col_height;
          uint32_t* sums = static_cast<uint32_t*>(execution.workspace) + slot * g.col_width;
          std::fill_n(sums, g.col_width, 0u);
          for (int64_t c = 0; c < channels; ++c, image += g.pixels())
            ForEachTap(g, [&](int64_t d, int64_t i, int64_t j) {
              const int32_t weight = *w++;
              ForEachSegment(g, d, i, j, 0, g.col_width, [&](const Segment& s) {
                if (s.end > s.begin)
                  AddProducts(image + s.source + s.begin * g.stride_w(), g.stride_w(),
                              s.end - s.begin, rest.x_zero, weight, sums + s.column + s.begin);
              });
            });
          WriteResults(
              spec, rest, sums, g.col_width, [m](int64_t) { return m; }, execution,
              item * g.col_width);
        });
  });
}

/// One row at a time.
void RunMatMul(const QuantizedMatMulSpec& spec, const Execution& execution) {
  const Rest rest(spec, execution);
  SwitchByte(spec.x_type, [&]<class X>() {
    ParallelItems(
        spec.rows, spec.threads, spec.length * spec.outputs, [&](int64_t row, int64_t slot) {
          const X* x = execution.in<X>(0) + row * spec.length;
          const int8_t* w = execution.in<int8_t>(1);
          uint32_t* sums = static_cast<uint32_t*>(execution.workspace) + slot * spec.outputs;
          std::fill_n(sums, spec.outputs, 0u);
          for (int64_t k = 0; k < spec.length; ++k, w += spec.outputs)
            AddProducts(w, 1, spec.outputs, 0, x[k] - rest.x_zero, sums);
          WriteResults(
              spec, rest, sums, spec.outputs, [](int64_t i) { return i; }, execution,
              row * spec.outputs);
        });
  });
}

size_t ConvWorkspace(const QuantizedConvSpec& spec) {
  return static_cast<size_t>(spec.threads * spec.geometry.col_width) * sizeof(uint32_t);
}
size_t MatMulWorkspace(const QuantizedMatMulSpec& spec) {
  return static_cast<size_t>(spec.threads * spec.outputs) * sizeof(uint32_t);
}

/// sum[i] (+)= (x[i] − zero)·scale
template <class X>
SINGA_MULTI_ISA void Dequantize(const X* x, int64_t n, float scale, float zero, bool adds,
                                float* sum) {
  if (adds) {
    for (int64_t i = 0; i < n; ++i) sum[i] += (static_cast<float>(x[i]) - zero) * scale;
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i] = (static_cast<float>(x[i]) - zero) * scale;
  }
}
template <class Y>
SINGA_MULTI_ISA void Quantize(const float* sum, int64_t n, float scale, float zero, Y* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Quantized<Y>(sum[i] / scale, zero);
}
SINGA_MULTI_ISA void Rectify(float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

void RunSum(const QuantizedSumSpec& spec, const Execution& execution) {
  const auto count = static_cast<size_t>(spec.count);
  const float y_scale = execution.value_or<float>(3 * count, 0, 1.0f);
  const auto y_zero = static_cast<float>(execution.value_or<int32_t>(3 * count + 1, 0, 0));
  ParallelFor(execution.outputs[0].size(), kParallelGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPiece = 1024;
    float room[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      float* sum = spec.y_type == kFloat32 ? execution.out<float>(0) + at : room;
      for (size_t i = 0; i < count; ++i) {
        const auto scale = execution.value_or<float>(3 * i + 1, 0, 1.0f);
        const auto zero = static_cast<float>(execution.value_or<int32_t>(3 * i + 2, 0, 0));
        const auto add = [&]<class X>() {
          Dequantize(execution.in<X>(3 * i) + at, n, scale, zero, i > 0, sum);
        };
        if (spec.x_types[i] == kFloat32)
          add.template operator()<float>();
        else
          SwitchByte(spec.x_types[i], add);
      }
      if (spec.relu) Rectify(sum, n);
      if (spec.y_type != kFloat32)
        SwitchByte(spec.y_type,
                   [&]<class Y>() { Quantize(sum, n, y_scale, y_zero, execution.out<Y>(0) + at); });
    }
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<QuantizedConvSpec, RunConv, ConvWorkspace>();
  RegisterReference<QuantizedMatMulSpec, RunMatMul, MatMulWorkspace>();
  RegisterReference<QuantizedSumSpec, RunSum>();
}

}  // namespace singa::reference
