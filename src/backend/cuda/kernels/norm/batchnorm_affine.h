#pragma once

// The affine map that batch normalisation is for each channel, once its statistics are known, and
// the activation behind it.

#include <cstdint>
#include <limits>
#include <type_traits>

#include "backend/cuda/kernels/common/channels.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::cuda {

/// mean, factor and bias of each channel, one array after the other.
template <class S>
struct Affine {
  struct One {
    S mean, factor, bias;
    __device__ S operator()(S x) const { return BatchNormValue(x, mean, factor, bias); }
  };
  __device__ One Of(int64_t c) const {
    return {of_channel[c], of_channel[channels + c], of_channel[2 * channels + c]};
  }
  /// Of neighbours, whose numbers and the number of all are multiples of kLength.
  template <int kLength>
  __device__ void Of(int64_t c, One (&of)[kLength]) const {
    const auto means = LoadVector<S, kLength>(of_channel + c);
    const auto factors = LoadVector<S, kLength>(of_channel + channels + c);
    const auto biases = LoadVector<S, kLength>(of_channel + 2 * channels + c);
#pragma unroll
    for (int j = 0; j < kLength; ++j) of[j] = {means.v[j], factors.v[j], biases.v[j]};
  }

  const S* of_channel;
  int64_t channels;
};

/// An activation in a kernel. Without kOther it is ReLU or none, and takes one comparison: where
/// values come from several branches, ptxas takes the stores of vectors apart.
template <class S, bool kOther>
struct Function {
  explicit Function(const Activation& activation)
      : kind(activation.kind),
        low(static_cast<S>(activation.low)),
        high(static_cast<S>(activation.high)) {}
  __device__ bool is_relu() const { return kind == ActivationKind::kRelu; }
  __device__ S operator()(S v) const {
    if constexpr (kOther) {
      return formula::Activated(kind, v, low, high);
    } else {
      const S least = is_relu() ? S(0) : -std::numeric_limits<S>::infinity();
      return v <= least ? least : v;
    }
  }
  /// dy · f'(v)
  __device__ S Gradient(S dy, S v) const {
    if constexpr (kOther) {
      return formula::ActivatedGradient(kind, dy, v, low, high);
    } else {
      // Nothing is less than or equal to NaN.
      const S least = is_relu() ? S(0) : std::numeric_limits<S>::quiet_NaN();
      return v <= least ? S(0) : dy;
    }
  }

  ActivationKind kind;
  S low, high;
};

/// Calls f(other): std::true_type for an activation besides ReLU.
template <class F>
void WithFunction(const Activation& activation, const F& f) {
  if (activation && activation.kind != ActivationKind::kRelu)
    f(std::true_type());
  else
    f(std::false_type());
}

template <class S>
__device__ void WriteAffine(S* affine, int64_t channels, int64_t c, S mean, S var, const S* scale,
                            const S* bias, double epsilon) {
  affine[c] = mean;
  affine[channels + c] = BatchNormFactor(scale ? scale[c] : S(1), var, epsilon);
  affine[2 * channels + c] = bias ? bias[c] : S(0);
}

template <class S>
__global__ void __launch_bounds__(Channels::kThreads)
    GivenStatistics(int64_t channels, const S* mean, const S* var, const S* scale, const S* bias,
                    double epsilon, S* affine) {
  const int64_t c = FirstElement();
  if (c < channels) WriteAffine(affine, channels, c, mean[c], var[c], scale, bias, epsilon);
}

}  // namespace singa::cuda
