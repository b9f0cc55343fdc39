#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Local response normalisation across channels (Krizhevsky et al. 2012) of x (N, C, ...), with
/// alpha scaled as Caffe, PyTorch and ONNX do:
///   y = x / (k + alpha / size · Σ x²)^beta
/// over `size` neighbouring channels: c − size/2 to c + (size − 1)/2, halves rounded down, so an
/// even size reaches one further down than up (PyTorch; ONNX: up). Channels outside x count as
/// zero. {y, saved}; `saved` is the implementation's own form of what backward needs, empty when
/// not training or when it needs nothing.
SINGA_API std::vector<Tensor> LrnForward(const Tensor& x, int64_t size, double alpha = 1e-4,
                                         double beta = 0.75, double k = 1.0, bool training = true);
/// dx. `saved` may be empty: it is then found again from x.
SINGA_API Tensor LrnBackward(const Tensor& dy, const Tensor& x, const Tensor& y,
                             const Tensor& saved, int64_t size, double alpha, double beta,
                             double k);

}  // namespace singa
