#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Local response normalisation across channels (Krizhevsky et al. 2012, as Caffe, PyTorch and ONNX
/// scale alpha):
///   y = x / (k + alpha / size · Σ x²)^beta   over `size` neighbouring channels (odd size centred).
/// {y, saved}; `saved` is the implementation's own form of what backward needs, empty when not
/// training.
SINGA_API std::vector<Tensor> LrnForward(const Tensor& x, int64_t size, double alpha = 1e-4,
                                         double beta = 0.75, double k = 1.0, bool training = true);
SINGA_API Tensor LrnBackward(const Tensor& dy, const Tensor& x, const Tensor& y,
                             const Tensor& saved, int64_t size, double alpha, double beta,
                             double k);

}  // namespace singa
