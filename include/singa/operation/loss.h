#pragma once

#include <vector>

#include "singa/core/tensor.h"

// A loss has shape () and type float32 (float64 for float64 predictions), since 16 bits would lose
// digits of the mean. Sums are in float64. A gradient has the type of the input that it belongs to;
// `dy` has one element of any float type. Targets may have another type than predictions, and have
// no gradient.

namespace singa {

/// Softmax cross-entropy of x (N, C): the mean over the batch of −Σ_c t·log softmax(x). `t` has
/// class numbers (N) or (N, 1), as int32, int64 or whole values of another type, or probabilities
/// (N, C). Label smoothing s replaces t by (1 − s)·t + s/C. Returns {loss, probabilities (N, C)};
/// backward takes the probabilities. A class number outside [0, C) raises std::out_of_range, one
/// with a fraction std::invalid_argument.
SINGA_API std::vector<Tensor> SoftmaxCrossEntropyForward(const Tensor& x, const Tensor& t,
                                                         double smoothing = 0);
/// Returns dx = dy · (p·Σ_c t − t) / N, for the smoothed t. Σ_c t is 1 if t is a distribution.
SINGA_API Tensor SoftmaxCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t,
                                             double smoothing = 0);

/// Mean over the batch (first axis) of −Σ t·log(max(p, 1e-10)) for probabilities p and targets t of
/// the same shape (SINGA's cross_entropy). The gradient −t/p also uses max(p, 1e-10), so it is
/// finite and not 0 for small p.
SINGA_API Tensor CrossEntropyForward(const Tensor& p, const Tensor& t);
/// Returns dp; dy has one element.
SINGA_API Tensor CrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t);

/// Mean over the batch (first axis) of −Σ (t·log p + (1 − t)·log(1 − p)). Logarithms are clamped at
/// −100. The gradient is (p − t) / max(p·(1 − p), 1e-12). Both bounds are PyTorch's.
SINGA_API Tensor BinaryCrossEntropyForward(const Tensor& p, const Tensor& t);
/// Returns dp; dy has one element.
SINGA_API Tensor BinaryCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t);

/// Mean of (x − t)² over all elements.
SINGA_API Tensor MeanSquareErrorForward(const Tensor& x, const Tensor& t);
/// Returns dx = dy · 2·(x − t) / n for n elements; dy has one element.
SINGA_API Tensor MeanSquareErrorBackward(const Tensor& dy, const Tensor& x, const Tensor& t);

/// Mean over all elements of max(0, margin − (positive − negative)).
SINGA_API Tensor RankingLossForward(const Tensor& positive, const Tensor& negative,
                                    double margin = 0.2);
/// Returns {dpositive, dnegative}.
SINGA_API std::vector<Tensor> RankingLossBackward(const Tensor& dy, const Tensor& positive,
                                                  const Tensor& negative, double margin);

}  // namespace singa
