#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Local response normalisation across channels (Krizhevsky et al. 2012) of x (N, C, ...), with
/// alpha scaled as in Caffe, PyTorch and ONNX:
///   y = x / (k + alpha / size · Σ x²)^beta
/// The sum for channel c runs from c − ⌊size/2⌋ to c + ⌊(size − 1)/2⌋, so an even size has one more
/// channel below than above, as in PyTorch (in ONNX: above). Channels outside x count as zero.
/// Returns {y, saved}. `saved` is what backward needs, in a form private to the implementation;
/// empty if nothing is needed or `training` is false.
SINGA_API std::vector<Tensor> LrnForward(const Tensor& x, int64_t size, double alpha = 1e-4,
                                         double beta = 0.75, double k = 1.0, bool training = true);
/// Returns dx. If `saved` is empty, it is recomputed from x.
SINGA_API Tensor LrnBackward(const Tensor& dy, const Tensor& x, const Tensor& y,
                             const Tensor& saved, int64_t size, double alpha, double beta,
                             double k);

}  // namespace singa
