#pragma once

#include <vector>

#include "singa/core/tensor.h"

// A loss has shape (), and type float32 (float64 for float64): a mean keeps more digits than 16
// bits have. Gradients have the type of what they are the gradient of; `dy` is one element of any
// float type. Targets may be of another type than predictions, and have no gradient. Sums are in
// float64.

namespace singa {

/// Mean over the batch of −Σ_c t·log softmax(x), x (N, C). `t` holds class numbers (N) int32/int64
/// (also (N, 1), and other types with whole values), or probabilities (N, C). `smoothing` s mixes
/// the target with the uniform one: (1 − s)·t + s/C. A class number outside [0, C) raises
/// std::invalid_argument naming the first. {loss, probabilities (N, C)}; the second is what
/// backward takes.
SINGA_API std::vector<Tensor> SoftmaxCrossEntropyForward(const Tensor& x, const Tensor& t,
                                                         double smoothing = 0);
/// dx = dy · (p·Σt − t) / N; the sum is 1 for probabilities.
SINGA_API Tensor SoftmaxCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t,
                                             double smoothing = 0);

/// Mean over the batch of −Σ t·log(p), with log clamped at log(1e-10): p are probabilities already
/// (SINGA's cross_entropy). t has p's shape; N is its first axis. The gradient −t/p takes the same
/// least p, and so stays finite and never vanishes.
SINGA_API Tensor CrossEntropyForward(const Tensor& p, const Tensor& t);
SINGA_API Tensor CrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t);

/// Mean over the batch (first axis) of −Σ (t·log p + (1 − t)·log(1 − p)), clamped like PyTorch at
/// −100. The gradient is (p − t) / max(p·(1 − p), 1e-12), PyTorch's too.
SINGA_API Tensor BinaryCrossEntropyForward(const Tensor& p, const Tensor& t);
SINGA_API Tensor BinaryCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t);

/// Mean of (x − t)² over all elements.
SINGA_API Tensor MeanSquareErrorForward(const Tensor& x, const Tensor& t);
SINGA_API Tensor MeanSquareErrorBackward(const Tensor& dy, const Tensor& x, const Tensor& t);

/// Mean of max(0, margin − (positive − negative)).
SINGA_API Tensor RankingLossForward(const Tensor& positive, const Tensor& negative,
                                    double margin = 0.2);
/// {dpositive, dnegative}.
SINGA_API std::vector<Tensor> RankingLossBackward(const Tensor& dy, const Tensor& positive,
                                                  const Tensor& negative, double margin);

}  // namespace singa
